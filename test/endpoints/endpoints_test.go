// Package endpoints tests a complete host together with a complete I/O unit, over a fabric in
// memory. The netdevices in this file are pairs of sockets; netns_test.go uses real ones.
package endpoints

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/iounit"
	"github.com/splitnic/splitnic/splitdrv/iounit/policy"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/messaging/porttest"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/vnet"
)

// world is a fabric with one I/O unit and its card.
type world struct {
	t       *testing.T
	fabric  *fabrictest.Network
	card    *card
	unitKey *session.Key
	hostKey *session.Key
	addr    string            // of the I/O unit, the same after a restart
	device  string            // of the I/O unit
	trust   *session.Security // of the I/O unit that was started last
	// patience is for how long the I/O unit waits for a host that is only late; 0: its default.
	patience time.Duration
}

func newWorld(t *testing.T) *world {
	t.Helper()
	before := goleak.IgnoreCurrent() // goroutines that a failed test has left
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
	w := &world{t: t, fabric: fabrictest.New(), card: newCard(t), device: "unit"}
	fabrictest.NoLeaks(t, w.fabric)
	for _, k := range []**session.Key{&w.unitKey, &w.hostKey} {
		var err error
		if *k, err = session.GenerateKey(); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func (w *world) security(own, peer *session.Key) *session.Security {
	w.t.Helper()
	trust := &session.Trust{}
	if err := trust.Add(peer.Fingerprint().String()); err != nil {
		w.t.Fatal(err)
	}
	s, err := session.NewSecurity(own, "", trust)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// running is a running endpoint. Its stop ends the endpoint as SIGTERM does, and returns the result
// of its Run.
type running struct {
	cancel context.CancelFunc
	done   chan error
	once   sync.Once
	err    error
}

func start(t *testing.T, run func(context.Context) error) *running {
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{cancel: cancel, done: make(chan error, 1)}
	go func() { r.done <- run(ctx) }()
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func (r *running) stop() error {
	r.once.Do(func() {
		r.cancel()
		select {
		case r.err = <-r.done:
		case <-time.After(testenv.Patience):
			r.err = errors.New("Run does not return when its context is done")
		}
	})
	return r.err
}

// rules returns the policy with this text.
func rules(t *testing.T, text string) *policy.Policy {
	t.Helper()
	p, err := policy.Parse("policy.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// ruled gives an I/O unit a policy.
func ruled(t *testing.T, text string) func(*iounit.Config) {
	return func(c *iounit.Config) { c.Policy = rules(t, text) }
}

// unit starts an I/O unit.
func (w *world) unit(change ...func(*iounit.Config)) (*iounit.Unit, *running) {
	w.t.Helper()
	dev := w.fabric.Device(w.device)
	cfg := iounit.Config{
		Name: "unit", Software: "test", Device: dev,
		OpenLAN: w.card.open, LinkState: w.card.link,
		Messaging: messaging.Config{PeerTimeout: time.Minute}, Log: quiet(),
	}
	for _, c := range change {
		c(&cfg)
	}
	u, err := iounit.New(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	addr := w.addr
	if addr == "" {
		addr = testenv.Loopback() + ":0"
	}
	w.trust = w.security(w.unitKey, w.hostKey)
	ln, err := session.Listen(addr, session.ServerConfig{
		Security: w.trust, Burst: u.Burst, Rejected: u.Rejected,
		HandshakeTimeout: w.patience, PeerTimeout: w.patience,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.addr = ln.Addr().String()
	return u, start(w.t, func(ctx context.Context) error {
		return errors.Join(u.Run(ctx, ln), ln.Close(), dev.Close())
	})
}

// host starts a host on the fabric device with the host's name.
func (w *world) host(name string, change ...func(*host.Config)) (*netdev, *host.Host, *running) {
	w.t.Helper()
	dev := w.fabric.Device(name)
	d := newNetdev(w.t)
	cfg := host.Config{
		Name: name, Software: "test", IOUnits: []string{w.addr}, Security: w.security(w.hostKey, w.unitKey),
		Device: dev, Netdev: d, Offloads: vnet.AllOffloads,
		Messaging: messaging.Config{PeerTimeout: time.Minute},
		RetryMin:  time.Millisecond, RetryMax: 10 * time.Millisecond, Log: quiet(),
		// However busy the machine is, the first I/O unit of several is tried first.
		Patience: time.Minute,
	}
	for _, c := range change {
		c(&cfg)
	}
	h, err := host.New(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	return d, h, start(w.t, func(ctx context.Context) error { return errors.Join(h.Run(ctx), dev.Close()) })
}

// TestChanged waits for changes of a host's state and carrier with Changed alone, without polling.
func TestChanged(t *testing.T) {
	w := newWorld(t)
	_, unit := w.unit()
	_, h, _ := w.host("a")
	until := func(what string, is func(s *host.Status) bool) {
		t.Helper()
		for {
			next := h.Changed()
			if s := h.Status(); is(&s) {
				return
			}
			select {
			case <-next:
			case <-time.After(testenv.Patience):
				t.Fatalf("nobody says that there is %s: %+v", what, h.Status())
			}
		}
	}
	until("a carrier", func(s *host.Status) bool { return s.State == host.Connected && s.Netdevice.Carrier })
	w.card.change(func(l *lan.LinkState) { l.Up = false })
	until("no carrier", func(s *host.Status) bool { return s.State == host.Connected && !s.Netdevice.Carrier })
	if err := unit.stop(); err != nil {
		t.Error(err)
	}
	until("no session", func(s *host.Status) bool { return s.State == host.Connecting })
	w.card.change(func(l *lan.LinkState) { l.Up = true })
	w.unit()
	until("a session again", func(s *host.Status) bool { return s.State == host.Connected && s.Netdevice.Carrier })
}

func frame(n int, fill byte) []byte {
	f := bytes.Repeat([]byte{fill}, n)
	clear(f[:vnet.HdrLen])
	copy(f[vnet.HdrLen+12:], []byte{0x08, 0x00})
	return f
}

// from sets the source address of frame f to mac, as the I/O unit expects in frames of a host,
// and returns f.
func from(t *testing.T, mac string, f []byte) []byte {
	t.Helper()
	m, err := protocol.ParseMAC(mac)
	if err != nil {
		t.Fatal(err)
	}
	copy(f[vnet.HdrLen+6:], m[:])
	return f
}

// crosses sends a frame into one wire and expects it at the other.
func crosses(t *testing.T, from, to *porttest.Wire, f []byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	if err := from.Send(ctx, f); err != nil {
		t.Fatal(err)
	}
	got, err := to.Receive(ctx, make([]byte, 1<<16))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, f) {
		t.Fatalf("%d bytes arrived, differing from the %d sent", len(got), len(f))
	}
}

// both expects that frames cross in both directions between a host and its port on the LAN.
func (w *world) both(d *netdev) {
	w.t.Helper()
	lanWire := w.card.wire(d.mac)
	for _, n := range []int{60, 1500, 700} {
		crosses(w.t, d.wire, lanWire, from(w.t, d.mac, frame(n, byte(n))))
		crosses(w.t, lanWire, d.wire, frame(n, byte(n)))
	}
}

func TestHostFollowsItsIOUnit(t *testing.T) {
	w := newWorld(t)
	u, _ := w.unit()
	d, h, _ := w.host("alpha")
	d.up(t)
	if d.mtu != 1500 || d.active != 1 || len(d.mac) != 17 {
		t.Errorf("mtu %d, %d queues, mac %q", d.mtu, d.active, d.mac)
	}
	w.both(d)

	d.await(t, "the speed of the card", func() bool { return d.speed == 10000 })
	w.card.change(func(s *lan.LinkState) { s.Up, s.Speed = false, 0 })
	d.down(t)
	d.await(t, "no speed", func() bool { return d.speed == 0 })
	w.card.change(func(s *lan.LinkState) { s.Up, s.Speed = true, 25000 })
	d.up(t)
	d.await(t, "the speed of the card", func() bool { return d.speed == 25000 })
	if got := h.Status().IOUnit.SpeedMbps; got != 25000 {
		t.Errorf("the status says %d Mbit/s", got)
	}
	w.card.change(func(s *lan.LinkState) { s.MTU = 9000 })
	d.await(t, "the MTU of the card", func() bool { return d.mtu == 9000 })
	w.card.change(func(s *lan.LinkState) { s.MTU = 16000 })
	w.card.change(func(s *lan.LinkState) { s.MTU = 1400 })
	d.await(t, "the MTU of the card", func() bool { return d.mtu == 1400 })

	// The status of the I/O unit has the host a moment after its session begins.
	testenv.Eventually(t, func() bool {
		us := u.Status()
		return len(us.Hosts) == 1 && us.Hosts[0].Traffic != nil && us.Hosts[0].Traffic.Channels[0].RxFrames == 3
	}, "3 frames of the host's")
	hs, us := h.Status(), u.Status()
	if hs.State != host.Connected || hs.Netdevice.MAC != d.mac || hs.Netdevice.MTU != 1400 || hs.Traffic == nil {
		t.Errorf("host status: %+v", hs)
	}
	if len(us.Hosts) != 1 || us.Hosts[0].Name != "alpha" || us.Hosts[0].MAC != d.mac {
		t.Errorf("unit status: %+v", us)
	}
}

// TestHostSolicits expects the host to solicit the neighbours each time the netdevice gets the
// carrier, and to cancel a solicitation that is unfinished then.
func TestHostSolicits(t *testing.T) {
	w := newWorld(t)
	w.unit()
	begun, ended := make(chan context.Context), make(chan bool, 10)
	d, _, run := w.host("alpha", func(c *host.Config) {
		c.Netdev.(*netdev).onSolicit = func(ctx context.Context) {
			begun <- ctx
			<-ctx.Done()
			ended <- true
		}
	})
	d.up(t)
	last := <-begun
	for range 3 {
		w.card.change(func(s *lan.LinkState) { s.Up = false })
		d.down(t)
		if err := last.Err(); err != nil {
			t.Errorf("given up without a carrier: %v", err)
		}
		w.card.change(func(s *lan.LinkState) { s.Up = true })
		<-ended
		last = <-begun
	}
	if err := run.stop(); err != nil {
		t.Error(err)
	}
	<-ended
}

// TestCarrierOfAnEndedSession ends a session while the host carries out the I/O unit's last
// message, that the link is up. The carrier has to be lost in the end.
func TestCarrierOfAnEndedSession(t *testing.T) {
	w := newWorld(t)
	_, unit := w.unit()
	d, h, _ := w.host("alpha")
	d.up(t)
	// The carrier is set while the session is put to use, which waits for the netdevice once
	// more. The requests of the follower come after that.
	testenv.Eventually(t, func() bool { return h.Status().Filter != nil }, "the host is not followed")
	w.card.change(func(s *lan.LinkState) { s.Up = false })
	d.down(t)
	var entered, released sync.Once
	given, release := make(chan struct{}), make(chan struct{})
	goOn := func() { released.Do(func() { close(release) }) }
	t.Cleanup(goOn)
	_ = d.set(func() {
		d.onCarrier = func(up bool) {
			if up {
				entered.Do(func() { close(given) })
				<-release
			}
		}
	})
	w.card.change(func(s *lan.LinkState) { s.Up = true })
	select {
	case <-given:
	case <-time.After(testenv.Patience):
		t.Fatal("the carrier is not given")
	}
	if err := unit.stop(); err != nil {
		t.Error(err)
	}
	testenv.Eventually(t, func() bool { return h.Status().State == host.Connecting }, "the session goes on")
	goOn()
	d.await(t, "the carrier given", func() bool { return d.raised == 2 })
	d.down(t)
}

func TestHostReconnects(t *testing.T) {
	w := newWorld(t)
	_, unit := w.unit()
	d, h, _ := w.host("alpha")
	d.up(t)
	mac := d.mac
	w.both(d)
	for range 3 {
		if err := unit.stop(); err != nil {
			t.Fatal(err)
		}
		d.down(t)
		if n := w.card.open1(); n != 0 {
			t.Fatalf("%d LAN interfaces are left", n)
		}
		_, unit = w.unit()
		d.up(t)
		if d.mac != mac {
			t.Errorf("the MAC address changed from %s to %s", mac, d.mac)
		}
		w.both(d)
	}
	if s := h.Status(); s.Sessions != 4 {
		t.Errorf("%d sessions", s.Sessions)
	}
}

// TestUnitRestarts restarts the I/O unit after so many attempts of a host that the host would not
// connect again for hours if each pause were twice the last one.
func TestUnitRestarts(t *testing.T) {
	w := newWorld(t)
	_, unit := w.unit()
	d, h, _ := w.host("alpha", func(c *host.Config) {
		c.RetryMin, c.RetryMax = 10*time.Millisecond, 24*time.Hour
		c.Rand = func(n int64) int64 { return n - 1 }
	})
	d.up(t)
	if err := unit.stop(); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, func() bool { return h.Status().Attempts > 20 }, "20 attempts")
	w.unit()
	d.up(t)
}

// TestHostComesAgain opens a second session of a host before the I/O unit has noticed the end of
// the first. The second session has to replace the first, with the same MAC address.
func TestHostComesAgain(t *testing.T) {
	w := newWorld(t)
	u, _ := w.unit()
	// With shorter pauses the two hosts would take the session from each other for ever.
	d1, _, _ := w.host("alpha", func(c *host.Config) { c.RetryMin, c.RetryMax = time.Hour, time.Hour })
	d1.up(t)
	d2, _, _ := w.host("alpha")
	d2.up(t)
	d1.down(t)
	if d1.mac != d2.mac {
		t.Errorf("MAC addresses %s and %s", d1.mac, d2.mac)
	}
	if n := len(u.Status().Hosts); n > 1 {
		t.Errorf("%d hosts", n)
	}
}

// TestHostComesAgainAtHungPort connects a host again while the LAN interface of its last session
// does not close. The host has to be refused for the moment, and to get a session when the
// interface has closed.
func TestHostComesAgainAtHungPort(t *testing.T) {
	w := newWorld(t)
	u, _ := w.unit()
	d, _, h := w.host("alpha")
	d.up(t)
	closes := make(chan struct{})
	release := sync.OnceFunc(func() { close(closes) })
	t.Cleanup(release)
	w.card.hang(d.mac, closes)
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	d, again, _ := w.host("alpha")
	testenv.Eventually(t, func() bool { return u.Status().Refusals["busy"] > 0 }, "a refusal")
	testenv.Eventually(t, func() bool { return again.Status().LastError != "" }, "the refusal at the host")
	why := again.Status().LastError
	if !strings.Contains(why, "its interface on the network card hangs") {
		t.Errorf("the host was told: %s", why)
	}
	testenv.Explained(t, why)
	release()
	d.up(t)
	w.both(d)
}

func TestManyHosts(t *testing.T) {
	w := newWorld(t)
	const hosts = 8 // all with one key, for which the default policy permits fewer sessions
	u, _ := w.unit(ruled(t, "default:\n  max-sessions: 8\n"))
	var ds [hosts]*netdev
	var rs [hosts]*running
	for i := range ds {
		ds[i], _, rs[i] = w.host(fmt.Sprintf("host%d", i))
	}
	macs := map[string]bool{}
	for _, d := range ds {
		d.up(t)
		macs[d.mac] = true
	}
	if len(macs) != hosts {
		t.Errorf("%d MAC addresses for %d hosts", len(macs), hosts)
	}
	for _, d := range ds {
		w.both(d)
	}
	if n := len(u.Status().Hosts); n != hosts {
		t.Errorf("the status shows %d hosts", n)
	}
	if err := rs[0].stop(); err != nil {
		t.Fatal(err)
	}
	for _, d := range ds[1:] {
		w.both(d)
	}
}

func TestRefusals(t *testing.T) {
	w := newWorld(t)
	w.unit(func(c *iounit.Config) { c.MaxHosts = 2 })
	d, _, _ := w.host("alpha")
	d.up(t)
	mac, err := protocol.ParseMAC(d.mac)
	if err != nil {
		t.Fatal(err)
	}
	run := func(name string, change ...func(*host.Config)) error {
		t.Helper()
		_, _, r := w.host(name, change...)
		select {
		case err := <-r.done:
			r.once.Do(func() {})
			return err
		case <-time.After(testenv.Patience):
			t.Fatalf("%s goes on", name)
			return nil
		}
	}

	var refused *session.RefusedError
	err = run("beta", func(c *host.Config) { c.MAC = mac })
	if !errors.As(err, &refused) || refused.Code != session.CodePolicy || !strings.Contains(err.Error(), d.mac) {
		t.Errorf("another host's MAC address: %v", err)
	}
	stranger, err := session.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	var untrusted *session.UntrustedError
	err = run("mallory", func(c *host.Config) { c.Security = w.security(stranger, w.unitKey) })
	if !errors.As(err, &untrusted) || !untrusted.Ours {
		t.Errorf("a host that the unit does not trust: %v", err)
	}
	err = run("wary", func(c *host.Config) { c.Security = w.security(w.hostKey, stranger) })
	if !errors.As(err, &untrusted) || untrusted.Ours {
		t.Errorf("a unit that the host does not trust: %v", err)
	}

	// A refusal because of the limit is not final: the third host retries and gets a session.
	_, _, second := w.host("beta")
	third, _, _ := w.host("gamma")
	if err := second.stop(); err != nil {
		t.Fatal(err)
	}
	third.up(t)
	d.up(t)
}

// TestFabricFails disconnects the host from the fabric while the bootstrap connection stays up.
// The queue pairs fail, and the host has to get a new session when the fabric is back.
func TestFabricFails(t *testing.T) {
	w := newWorld(t)
	w.unit()
	d, h, _ := w.host("alpha", func(c *host.Config) { c.Messaging.KeepAlive = 10 * time.Millisecond })
	d.up(t)
	w.fabric.Cut("alpha")
	d.down(t)
	w.fabric.Heal("alpha")
	d.up(t)
	if h.Status().Sessions < 2 {
		t.Error("no new session")
	}
	w.both(d)
}

func TestHostTriesTheNextIOUnit(t *testing.T) {
	w := newWorld(t)
	w.unit()
	dead, err := net.Listen("tcp", testenv.Loopback()+":0")
	if err != nil {
		t.Fatal(err)
	}
	dead.Close()
	d, h, _ := w.host("alpha", func(c *host.Config) { c.IOUnits = []string{dead.Addr().String(), w.addr} })
	d.up(t)
	if s := h.Status(); s.IOUnit.Address != w.addr {
		t.Errorf("connected to %s", s.IOUnit.Address)
	}
}
