package iounit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/iounit/policy"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/tap/discard"
	"github.com/splitnic/splitnic/vnet"
)

// port is a LAN interface that records its settings.
type port struct {
	queue                 *queue
	queues                int // 0 means 1
	mac                   protocol.MAC
	up, promisc, allMulti bool
	floods                bool
	groups, unicast       []string
	offloads              vnet.Offloads
	link                  lan.LinkState
	stats                 lan.Stats
	announcing            sync.Mutex // guards announced, and fail while an announcer runs
	announced             [][]byte
	fail                  map[string]error // error of the next call, by method
	during                func()           // called by SetMAC
}

func texts(addrs []net.HardwareAddr) []string {
	var out []string
	for _, a := range addrs {
		out = append(out, a.String())
	}
	return out
}

func (p *port) set(method string, do func()) error {
	if err := p.fail[method]; err != nil {
		delete(p.fail, method) // once
		return err
	}
	do()
	return nil
}

func (p *port) Name() string                  { return "test" }
func (p *port) Queues() []lan.Queue           { return slices.Repeat([]lan.Queue{p.queue}, max(p.queues, 1)) }
func (p *port) MAC() net.HardwareAddr         { return p.mac[:] }
func (p *port) State() (lan.LinkState, error) { return p.link, p.fail["State"] }
func (p *port) Offloads() vnet.Offloads       { return p.offloads }
func (p *port) Stats() lan.Stats              { return p.stats }
func (p *port) Close() error                  { return nil }

func (p *port) Announce(frame []byte) error {
	p.announcing.Lock()
	defer p.announcing.Unlock()
	return p.set("Announce", func() { p.announced = append(p.announced, slices.Clone(frame)) })
}

func (p *port) SetMAC(mac net.HardwareAddr) error {
	if p.during != nil {
		p.during()
	}
	return p.set("SetMAC", func() { p.mac = protocol.MAC(mac) })
}
func (p *port) SetUp(up bool) error          { return p.set("SetUp", func() { p.up = up }) }
func (p *port) SetPromisc(on bool) error     { return p.set("SetPromisc", func() { p.promisc = on }) }
func (p *port) Floods() bool                 { return p.floods }
func (p *port) EarlyDiscard() discard.Status { return discard.Status{On: true} }
func (p *port) SetAllMulti(on bool) error    { return p.set("SetAllMulti", func() { p.allMulti = on }) }
func (p *port) SetMulticast(groups []net.HardwareAddr) error {
	return p.set("SetMulticast", func() { p.groups = texts(groups) })
}
func (p *port) SetUnicast(addrs []net.HardwareAddr) error {
	return p.set("SetUnicast", func() { p.unicast = texts(addrs) })
}
func (p *port) SetOffloads(o vnet.Offloads) (vnet.Offloads, error) {
	return o, p.set("SetOffloads", func() { p.offloads = o })
}
func (p *port) Watch(context.Context, func(lan.LinkState)) error { return nil }

var _ lan.Interface = (*port)(nil)

func newUnit(t testing.TB, cfg Config) *Unit {
	t.Helper()
	cfg.Device = fabrictest.New().Device("unit")
	cfg.OpenLAN = func(net.HardwareAddr, int) (lan.Interface, error) { return nil, errors.New("not in this test") }
	cfg.LinkState = func() (lan.LinkState, error) { return lan.LinkState{MAC: card}, nil }
	cfg.Log = slog.New(slog.DiscardHandler)
	u, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// client makes requests to the services of one host, on an I/O unit that has another host, too.
type client struct {
	t    *testing.T
	s    *services
	port *port
	unit *Unit
}

// named returns the identity of a peer that is trusted under a name.
func named(name string) func() session.Identity {
	return func() session.Identity { return session.Identity{Name: name} }
}

func newClient(t *testing.T, h *policy.Host) *client {
	t.Helper()
	u := newUnit(t, Config{})
	c := &client{t: t, unit: u, port: &port{
		queue: &queue{}, mac: own, up: true, allMulti: true, offloads: vnet.AllOffloads,
		link: lan.LinkState{Up: true, MTU: 9000, Speed: 25000}, fail: map[string]error{},
	}}
	a := &attachment{host: host{key: "a", peer: named("alpha"), log: u.cfg.Log, policy: h, own: own,
		hello: session.Hello{Name: "alpha", MaxMTU: 9000}}}
	b := &attachment{host: host{key: "b", peer: named("beta"), hello: session.Hello{Name: "beta"}}}
	u.hosts["a"], u.hosts["b"] = a, b
	if err := errors.Join(u.addresses.claim(&a.host, own, nil), u.addresses.claim(&b.host, other, nil)); err != nil {
		t.Fatal(err)
	}
	c.s = newServices(&a.host, &u.common, c.port, own, 1500, 1500)
	conn, err := messaging.New(messaging.Config{Device: u.cfg.Device})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	c.s.conn = conn
	return c
}

// write writes a frame to a port.
func write(p messaging.Port, frame []byte) error {
	ops := []vnet.WriteOp{{Head: frame}}
	p.WriteFrames(ops)
	return ops[0].Err
}

// read reads a frame from a port.
func read(p messaging.Port) ([]byte, error) {
	ops := []vnet.ReadOp{{Slot: make([]byte, 1<<16)}}
	p.ReadFrames(ops)
	return ops[0].Frame, ops[0].Err
}

// passes reports whether a frame of the host gets to the LAN.
func (c *client) passes(frame []byte) bool {
	c.t.Helper()
	c.port.queue.Out = nil
	if err := write(c.s.guard.Ports()[0], frame); err != nil {
		c.t.Error(err)
	}
	return len(c.port.queue.Out) == 1
}

// ask makes a request, expects this status, and returns the reply.
func (c *client) ask(what string, t protocol.CfgType, data []byte, want protocol.CfgStatus) []byte {
	c.t.Helper()
	status, reply := c.s.answer(t, data)
	if status != want {
		c.t.Errorf("%s: %v, want %v", what, status, want)
	}
	return reply
}

func (c *client) mac(m protocol.MAC, want protocol.CfgStatus) {
	c.t.Helper()
	c.ask("MAC address "+m.String(), protocol.CfgMAC, protocol.AppendMAC(nil, m), want)
}

func (c *client) filter(f protocol.ReceiveFilter, want protocol.CfgStatus) {
	c.t.Helper()
	c.ask(fmt.Sprintf("filter %+v", f), protocol.CfgFilter, protocol.AppendReceiveFilter(nil, f), want)
}

func (c *client) vlans(s string, want protocol.CfgStatus) {
	c.t.Helper()
	set, err := protocol.ParseVLANs(s)
	if err != nil {
		c.t.Fatal(err)
	}
	c.ask("VLANs "+s, protocol.CfgVLAN, protocol.AppendVLANSet(nil, set), want)
}

func (c *client) mtu(mtu int, want protocol.CfgStatus) {
	c.t.Helper()
	c.ask(fmt.Sprintf("MTU %d", mtu), protocol.CfgMTU, protocol.AppendMTU(nil, mtu), want)
}

func TestServiceMAC(t *testing.T) {
	c := newClient(t, hostWith("all", "02:00:*", "02:07:*"))
	c.mac(other, protocol.CfgDenied)
	c.mac(card, protocol.CfgDenied)
	c.mac(protocol.MAC{6, 0, 0, 0, 0, 1}, protocol.CfgDenied)
	c.ask("a group", protocol.CfgMAC, broadcast[:], protocol.CfgInvalid)
	c.port.fail["SetMAC"] = fmt.Errorf("test: %w", lan.ErrInUse)
	c.mac(machine, protocol.CfgDenied)
	c.port.fail["SetMAC"] = unix.EIO
	c.mac(machine, protocol.CfgFailed)
	if c.port.mac != own || !c.unit.addresses.taken.Load().Has(own) || c.unit.addresses.taken.Load().Has(machine) {
		t.Error("refused, and changed something")
	}
	c.mac(machine, protocol.CfgOK)
	if c.port.mac != machine || c.unit.addresses.taken.Load().Has(own) || !c.unit.addresses.taken.Load().Has(machine) ||
		c.s.guard.Rules().MAC != machine {
		t.Error("granted, and not changed everywhere")
	}
	if got := c.ask("query", protocol.CfgMAC, nil, protocol.CfgOK); !slices.Equal(got, machine[:]) {
		t.Errorf("in force is %v", got)
	}
	// The former address is free for another host.
	if err := c.unit.addresses.claim(&c.unit.hosts["b"].host, own, nil); err != nil {
		t.Error(err)
	}
	c.mac(own, protocol.CfgDenied)
}

func TestServiceMTU(t *testing.T) {
	c := newClient(t, hostWith("all"))
	c.mtu(9001, protocol.CfgDenied)
	c.ask("no MTU", protocol.CfgMTU, []byte{0, 0, 0, 1}, protocol.CfgInvalid)
	c.mtu(1400, protocol.CfgOK)
	for _, tc := range []struct {
		card, mtu int
		changed   bool
	}{{9000, 1400, false}, {1300, 1300, true}, {1500, 1400, true}} {
		if mtu, changed := c.s.follow(tc.card); mtu != tc.mtu || changed != tc.changed {
			t.Errorf("card of MTU %d: %d, %t", tc.card, mtu, changed)
		}
	}
	if got, err := protocol.DecodeMTU(c.ask("query", protocol.CfgMTU, nil, protocol.CfgOK)); got != 1400 || err != nil {
		t.Errorf("in force is %d, %v", got, err)
	}
	// The card's MTU has changed, which the services have not been told yet.
	c.port.link.MTU = 1600
	c.mtu(1600, protocol.CfgOK)
	if r := c.s.guard.Rules(); r.Card != 1600 || r.MTU != 1600 {
		t.Errorf("frames are judged by MTU %d on a card of %d", r.MTU, r.Card)
	}
}

func TestServiceLinkState(t *testing.T) {
	c := newClient(t, hostWith("all"))
	state := func(data []byte, want protocol.LinkState) {
		t.Helper()
		if got, err := protocol.DecodeLinkState(c.ask("link state", protocol.CfgLinkState, data,
			protocol.CfgOK)); got != want || err != nil {
			t.Errorf("%+v, want %+v, %v", got, want, err)
		}
	}
	state(nil, protocol.LinkState{Up: true, Speed: 25000})
	state(protocol.AppendLinkState(nil, protocol.LinkState{}), protocol.LinkState{Up: true, Speed: 25000})
	if c.port.up {
		t.Error("the port is up")
	}
	state(protocol.AppendLinkState(nil, protocol.LinkState{Up: true}), protocol.LinkState{Up: true, Speed: 25000})
	c.port.link.Up = false
	state(nil, protocol.LinkState{Speed: 25000})
	c.port.fail["SetUp"] = lan.ErrInUse
	c.ask("down", protocol.CfgLinkState, protocol.AppendLinkState(nil, protocol.LinkState{}), protocol.CfgDenied)
	if !c.port.up {
		t.Error("the port is down")
	}
}

func TestServiceFilter(t *testing.T) {
	c := newClient(t, hostWith("5", "02:*"))
	c.filter(protocol.ReceiveFilter{Promisc: true}, protocol.CfgDenied)
	c.filter(protocol.ReceiveFilter{Unicast: []protocol.MAC{other}}, protocol.CfgDenied)
	c.filter(protocol.ReceiveFilter{Unicast: []protocol.MAC{card}}, protocol.CfgDenied)
	c.filter(protocol.ReceiveFilter{Unicast: []protocol.MAC{{6, 0, 0, 0, 0, 1}}}, protocol.CfgDenied)
	c.ask("garbage", protocol.CfgFilter, []byte{1, 2, 3}, protocol.CfgInvalid)
	if !c.port.allMulti || c.port.unicast != nil || !c.s.guard.Rules().Every ||
		c.unit.addresses.taken.Load().Has(machine) {
		t.Error("refused, and changed something")
	}
	f := protocol.ReceiveFilter{Unicast: []protocol.MAC{machine},
		Multicast: []protocol.Group{wanted, broadcast, {1, 0, 0x5e, 0, 0, 1}}}
	c.filter(f, protocol.CfgOK)
	r := c.s.guard.Rules()
	if c.port.allMulti || c.port.promisc || !slices.Equal(c.port.groups, []string{wanted.String(), "01:00:5e:00:00:01"}) ||
		!slices.Equal(c.port.unicast, []string{machine.String()}) {
		t.Errorf("%+v", c.port)
	}
	if r.Every || !slices.Equal(r.Groups, []protocol.Group{{1, 0, 0x5e, 0, 0, 1}, wanted, broadcast}) ||
		!c.unit.addresses.taken.Load().Has(machine) {
		t.Errorf("rules %+v", r)
	}
	if err := c.unit.addresses.claim(&c.unit.hosts["b"].host, machine, nil); !errors.Is(err, errDenied) {
		t.Errorf("another host got the further address: %v", err)
	}
	for _, method := range []string{"SetUnicast", "SetMulticast", "SetAllMulti", "SetPromisc"} {
		c.port.fail[method] = unix.EIO
		c.filter(protocol.ReceiveFilter{AllMulti: true}, protocol.CfgFailed)
		if c.port.allMulti || len(c.port.groups) != 2 || len(c.port.unicast) != 1 || c.s.guard.Rules().Every ||
			!c.unit.addresses.taken.Load().Has(machine) {
			t.Errorf("%s failed, and something changed: %+v", method, c.port)
		}
	}
	got, err := protocol.DecodeReceiveFilter(c.ask("query", protocol.CfgFilter, nil, protocol.CfgOK))
	if err != nil || !got.Equal(f) {
		t.Errorf("in force is %+v, %v", got, err)
	}
	// On a port of a bridge, promiscuous mode needs no permission.
	c.port.floods = true
	c.filter(protocol.ReceiveFilter{Promisc: true}, protocol.CfgOK)
	c.filter(protocol.ReceiveFilter{}, protocol.CfgOK)
	c.port.floods = false
	c.s.policy.Promiscuous = true
	c.filter(protocol.ReceiveFilter{Promisc: true}, protocol.CfgOK)
	if !c.port.promisc || !c.s.guard.Rules().Every {
		t.Error("not promiscuous")
	}
}

func TestServiceVLANs(t *testing.T) {
	c := newClient(t, hostWith("5,10-19"))
	inForce := func(want string) {
		t.Helper()
		got, err := protocol.DecodeVLANSet(c.ask("query", protocol.CfgVLAN, nil, protocol.CfgOK))
		if err != nil || got.String() != want {
			t.Errorf("in force is %v, want %s, %v", got, want, err)
		}
	}
	inForce("5,10-19")
	c.vlans("5,20", protocol.CfgDenied)
	inForce("5,10-19")
	c.vlans("none", protocol.CfgOK)
	inForce("none")
	if !c.s.policy.VLANs.Has(5) || c.s.guard.Rules().Receive.Has(5) {
		t.Error("the wish is taken for the permission, or not taken at all")
	}
	c.vlans("5,11", protocol.CfgOK)
	inForce("5,11")
	if r := c.s.guard.Rules().Receive; r.String() != "5,11" {
		t.Errorf("received are %v", r)
	}
	c.s.policy.Promiscuous = true
	c.filter(protocol.ReceiveFilter{Promisc: true}, protocol.CfgOK)
	if r := c.s.guard.Rules().Receive; r.String() != "5,10-19" {
		t.Errorf("promiscuous, received are %v", r)
	}
	c.vlans("all", protocol.CfgOK)
	inForce("5,10-19")
}

func TestServiceOffloads(t *testing.T) {
	c := newClient(t, hostWith("all"))
	c.ask("offloads", protocol.CfgOffloads, protocol.AppendOffloads(nil, vnet.CSUM|vnet.TSO4|1<<30), protocol.CfgOK)
	if c.port.offloads != vnet.CSUM|vnet.TSO4 {
		t.Errorf("offloads %v", c.port.offloads)
	}
	c.port.fail["SetOffloads"] = lan.ErrUnsupported
	c.ask("offloads", protocol.CfgOffloads, protocol.AppendOffloads(nil, 0), protocol.CfgUnsupported)
}

func TestServiceStatistics(t *testing.T) {
	c := newClient(t, hostWith("5"))
	p := c.s.guard.Ports()[0]
	for _, f := range [][]byte{frame(other, own, 60), frame(other, own, 100, 5), frame(other, own, 60, 6),
		frame(other, card, 60)} {
		if err := write(p, f); err != nil {
			t.Fatal(err)
		}
	}
	c.port.stats = lan.Stats{Dropped: 3, Invalid: 2, TooLong: 9}
	want := protocol.Statistics{TxFrames: 2, TxBytes: 160, TxSource: 1, TxVLAN: 1, RxDropped: 3, RxInvalid: 2}
	read := func(what string, typ protocol.CfgType, want protocol.Statistics) {
		t.Helper()
		got, err := protocol.DecodeStatistics(c.ask(what, typ, nil, protocol.CfgOK))
		if got != want || err != nil {
			t.Errorf("%s: %+v, want %+v, %v", what, got, want, err)
		}
	}
	read("read", protocol.CfgStatsRead, want)
	read("clear", protocol.CfgStatsClear, want)
	read("read after clear", protocol.CfgStatsRead, protocol.Statistics{})
	_ = write(p, frame(other, own, 60))
	read("clear again", protocol.CfgStatsClear, protocol.Statistics{TxFrames: 1, TxBytes: 60})
	read("read again", protocol.CfgStatsRead, protocol.Statistics{})
	c.ask("data", protocol.CfgStatsRead, []byte{1}, protocol.CfgInvalid)
	if got := c.s.reported(); got.TxFrames != 3 {
		t.Errorf("the status forgot: %+v", got)
	}
}

func TestServiceReset(t *testing.T) {
	h := hostWith("5,6")
	h.Promiscuous = true
	c := newClient(t, h)
	c.mac(machine, protocol.CfgOK)
	c.filter(protocol.ReceiveFilter{Promisc: true, Unicast: []protocol.MAC{{2, 8, 0, 0, 0, 1}},
		Multicast: []protocol.Group{wanted}}, protocol.CfgOK)
	c.vlans("5", protocol.CfgOK)
	c.mtu(1400, protocol.CfgOK)
	c.ask("down", protocol.CfgLinkState, protocol.AppendLinkState(nil, protocol.LinkState{}), protocol.CfgOK)
	c.ask("reset", protocol.CfgReset, nil, protocol.CfgOK)
	p, r := c.port, c.s.guard.Rules()
	if p.mac != own || !p.up || p.promisc || !p.allMulti || len(p.groups) != 0 || len(p.unicast) != 0 {
		t.Errorf("%+v", p)
	}
	if now, mtu := c.s.current(); mtu != 9000 || now.mac != own || !now.filter.Equal(c.s.begun.filter) ||
		now.vlans != h.VLANs {
		t.Errorf("MTU %d, %+v", mtu, now)
	}
	if r.MAC != own || !r.Every || r.Receive != h.VLANs || len(r.Further) != 0 {
		t.Errorf("rules %+v", r)
	}
	c.ask("unknown", protocol.CfgType(99), nil, protocol.CfgUnsupported)
}

func TestAddressOfPolicy(t *testing.T) {
	u := newUnit(t, Config{})
	var latest *host
	attach := func(key string, wish protocol.MAC, h *policy.Host) (protocol.MAC, error) {
		latest = &host{key: key, policy: h, hello: session.Hello{Name: key, MAC: wish},
			peer: func() session.Identity { return session.Identity{Name: key} }}
		return u.addresses.choose(latest)
	}
	open, two := hostWith("all"), hostWith("all", "02:55:00:00:00:01", "02:66:*")
	if m, err := attach("a", protocol.MAC{}, open); err != nil || m != ownOf("a") {
		t.Errorf("%v, %v", m, err)
	}
	if m, err := attach("b", machine, open); err != nil || m != machine {
		t.Errorf("%v, %v", m, err)
	}
	if m, err := attach("c", machine, open); !errors.Is(err, errDenied) {
		t.Errorf("another host's: %v, %v", m, err)
	}
	if m, err := attach("d", protocol.MAC{2, 77, 0, 0, 0, 1}, two); !errors.Is(err, errDenied) {
		t.Errorf("not in the policy: %v, %v", m, err)
	}
	if m, err := attach("e", protocol.MAC{}, two); err != nil || m.String() != "02:55:00:00:00:01" {
		t.Errorf("the first of the policy: %v, %v", m, err)
	}
	if m, err := attach("f", protocol.MAC{}, two); err != nil || m.String()[:6] != "02:66:" {
		t.Errorf("the next of the policy: %v, %v", m, err)
	}
	if m, err := attach("g", protocol.MAC{}, hostWith("all", "02:55:00:00:00:01")); err == nil {
		t.Errorf("none is free: %v", m)
	}
	// Another host has taken the address that a host would get, before that host connects.
	for i, h := range []*policy.Host{open, hostWith("all", "02:77:*")} {
		late := fmt.Sprint("late", i)
		theirs := ownOf(late)
		if len(h.MACs) > 0 {
			theirs = h.MACs[0].Fit(theirs)
		}
		if _, err := attach(fmt.Sprint("thief", i), theirs, open); err != nil {
			t.Fatal(err)
		}
		if m, err := attach(late, protocol.MAC{}, h); err != nil || m == theirs || !m.Valid() ||
			!h.MayUse(m, latest.own) {
			t.Errorf("in place of one that was taken: %v, %v", m, err)
		}
	}
}

func TestChooseMode(t *testing.T) {
	imm, ind, snd, uc := protocol.ModeImm, protocol.ModeIndicate, protocol.ModeSend, protocol.ModeSendUC
	type modes = []protocol.Mode
	for _, tc := range []struct {
		wanted, have, allowed modes
		want                  protocol.Mode
	}{
		{modes{imm}, protocol.Modes(), protocol.Modes(), imm},
		{modes{uc, imm}, protocol.Modes(), protocol.Modes(), uc},
		{modes{uc, snd, imm}, modes{imm, snd}, protocol.Modes(), snd},
		{modes{uc, snd, imm}, protocol.Modes(), modes{ind, imm}, imm},
		{modes{uc}, modes{imm}, protocol.Modes(), ""},
		{modes{imm}, modes{imm}, modes{snd}, ""},
		{modes{"new", imm}, protocol.Modes(), protocol.Modes(), imm},
	} {
		got, err := chooseMode(tc.wanted, tc.have, tc.allowed)
		if got != tc.want || (err == nil) != (tc.want != "") {
			t.Errorf("%+v: %q, %v", tc, got, err)
		}
	}
}

func TestCodeOf(t *testing.T) {
	for err, want := range map[error]session.Code{
		lan.ErrInUse: session.CodePolicy, lan.ErrUnsupported: session.CodePolicy,
		fmt.Errorf("%w: %w", lan.ErrInUse, unix.EBUSY): session.CodePolicy,
		lan.ErrGone: session.CodeBusy, unix.ENOMEM: session.CodeBusy, messaging.ErrBudget: session.CodeBusy,
		messaging.ErrMemory: session.CodePolicy,
		unix.EPERM:          session.CodeFailed, unix.EOPNOTSUPP: session.CodeFailed, unix.EBUSY: session.CodeFailed,
	} {
		if got := codeOf(fmt.Errorf("open: %w", err)); got != want {
			t.Errorf("%v: %s, want %s", err, got, want)
		}
	}
}

func TestViolations(t *testing.T) {
	u := newUnit(t, Config{})
	broken := &messaging.ProtocolError{Rule: messaging.ErrFrame}
	for _, err := range []error{broken, fmt.Errorf("session: %w", broken), net.ErrClosed, nil} {
		u.violation(err)
	}
	if s := u.Status(); len(s.Violations) != 1 || s.Violations[broken.Code()] != 2 {
		t.Errorf("%v", s.Violations)
	}
}
