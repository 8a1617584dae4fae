package endpoints

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/messaging/porttest"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// script is an I/O unit that moves no frames, and answers the host's requests as the test sets it.
type script struct {
	t     *testing.T
	world *world

	mu      sync.Mutex
	changed chan struct{} // closed and replaced at every change
	asked   []asked       // requests so far, without keep-alives
	refuse  func(asked) protocol.CfgStatus
	hellos  []session.Hello
	conn    *messaging.Conn
	ended   func() // ends the session
	mac     protocol.MAC
	mtu     int
}

// asked is a request of the host.
type asked struct {
	t    protocol.CfgType
	data string
}

func (a asked) String() string {
	data := []byte(a.data)
	switch a.t {
	case protocol.CfgMAC:
		m, _ := protocol.DecodeMAC(data)
		return "mac " + m.String()
	case protocol.CfgMTU:
		m, _ := protocol.DecodeMTU(data)
		return fmt.Sprint("mtu ", m)
	case protocol.CfgLinkState:
		l, _ := protocol.DecodeLinkState(data)
		return fmt.Sprint("up ", l.Up)
	case protocol.CfgFilter:
		f, err := protocol.DecodeReceiveFilter(data)
		if err != nil {
			return err.Error()
		}
		return fmt.Sprintf("filter promisc=%t allmulti=%t %v %v", f.Promisc, f.AllMulti, f.Unicast, f.Multicast)
	case protocol.CfgVLAN:
		v, _ := protocol.DecodeVLANSet(data)
		return "vlans " + v.String()
	default:
		return a.t.String()
	}
}

const nothingMore = "filter promisc=false allmulti=false [] []"

// newScript starts a scripted I/O unit.
func newScript(t *testing.T) *script {
	s := &script{
		t: t, world: newWorld(t), changed: make(chan struct{}), mtu: 1500, mac: protocol.MAC{2, 0, 0, 0, 0, 1},
		refuse: func(asked) protocol.CfgStatus { return protocol.CfgOK },
	}
	w := s.world
	ln, err := session.Listen(testenv.Loopback()+":0", session.ServerConfig{Security: w.security(w.unitKey, w.hostKey)})
	if err != nil {
		t.Fatal(err)
	}
	w.addr = ln.Addr().String()
	dev := w.fabric.Device("unit")
	start(t, func(ctx context.Context) (err error) {
		defer func() { err = errors.Join(err, ln.Close(), dev.Close()) }()
		for {
			c, err := ln.Accept(ctx)
			if ctx.Err() != nil {
				return nil
			}
			if err != nil {
				return err
			}
			if err := s.serve(ctx, dev, c); err != nil {
				return err
			}
		}
	})
	return s
}

// serve runs one session.
func (s *script) serve(ctx context.Context, dev fabric.Device, c *session.Server) error {
	defer c.Close()
	hello := c.Hello()
	mac, mtu := s.mac, s.mtu
	if hello.MAC.Valid() {
		mac = hello.MAC
	}
	s.set(func() { s.hellos = append(s.hellos, hello) })
	if s.refuse(asked{protocol.CfgMAC, string(mac[:])}) != protocol.CfgOK {
		return c.Refuse(session.CodePolicy, "another host has it")
	}
	// Not New: the host is satisfied, and the test may be over, before the data channels are
	// started.
	p, wire, err := porttest.Open(1 << 20)
	if err != nil {
		return err
	}
	defer func() { _ = errors.Join(p.Close(), wire.Close()) }()
	mcfg := s.config(dev, mtu, &hello)
	conn, err := messaging.New(mcfg)
	if err != nil {
		return err
	}
	defer conn.Close()
	welcome := s.welcome(conn, &mcfg)
	welcome.MAC, welcome.MTU = mac, mtu
	welcome.Channels = session.Channels(conn.Addresses())
	accept, err := c.Welcome(ctx, welcome)
	if bye := (*session.ByeError)(nil); errors.As(err, &bye) || ctx.Err() != nil {
		return nil // the host wants something that is not granted, or the test is over
	}
	if err != nil {
		return err
	}
	if err := errors.Join(conn.Connect(session.Addresses(accept.Channels), accept.ControlReceives), c.Ready(ctx),
		conn.Start([]messaging.Port{porttest.Batched{Single: p}})); err != nil {
		return err
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	s.set(func() { s.conn, s.ended = conn, end })
	select {
	case <-ctx.Done():
	case <-conn.Done():
	case <-c.Done():
	}
	s.set(func() { s.conn = nil })
	_ = c.Bye(session.CodeShuttingDown, "the script ends") // fails if the host has disconnected
	return nil
}

func (s *script) answer(t protocol.CfgType, data []byte) (protocol.CfgStatus, []byte) {
	if t == protocol.CfgRefusal { // as an I/O unit that does not know it
		return protocol.CfgUnsupported, nil
	}
	a := asked{t, string(data)}
	s.mu.Lock()
	status := s.refuse(a)
	s.mu.Unlock()
	s.set(func() { s.asked = append(s.asked, a) })
	switch {
	case status != protocol.CfgOK:
		return status, nil
	case t == protocol.CfgStatsRead, t == protocol.CfgStatsClear:
		return status, protocol.AppendStatistics(nil, protocol.Statistics{RxFrames: 7, TxVLAN: 9})
	default:
		return status, data
	}
}

func (s *script) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	close(s.changed)
	s.changed = make(chan struct{})
}

// refuses makes the I/O unit answer with this status to requests for which pick returns true.
func (s *script) refuses(status protocol.CfgStatus, pick func(asked) bool) {
	s.set(func() {
		s.refuse = func(a asked) protocol.CfgStatus {
			if pick(a) {
				return status
			}
			return protocol.CfgOK
		}
	})
}

// await waits until cond holds.
func (s *script) await(what string, cond func() bool) {
	s.t.Helper()
	late := time.After(testenv.Patience)
	for {
		s.mu.Lock()
		ok, changed := cond(), s.changed
		s.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-late:
			s.t.Fatalf("waited in vain for %s; asked: %v", what, s.asked)
		}
	}
}

// gets waits for the host's requests since the last gets, which have to be exactly these.
func (s *script) gets(want ...string) {
	s.t.Helper()
	s.await(fmt.Sprintf("%q", want), func() bool { return len(s.asked) >= len(want) })
	s.mu.Lock()
	defer s.mu.Unlock()
	var got []string
	for _, a := range s.asked {
		got = append(got, a.String())
	}
	if !slices.Equal(got, want) {
		s.t.Fatalf("the host asked for %q, expected %q", got, want)
	}
	s.asked = nil
}

// session waits for a session, and returns its connection and the function that ends it.
func (s *script) session() (*messaging.Conn, func()) {
	s.t.Helper()
	var conn *messaging.Conn
	var end func()
	s.await("a session", func() bool { conn, end = s.conn, s.ended; return conn != nil })
	return conn, end
}

// end ends the session, and waits for the next.
func (s *script) end() {
	s.t.Helper()
	old, end := s.session()
	end()
	s.await("the next session", func() bool { return s.conn != nil && s.conn != old })
}

// push sends a request to the host, as an I/O unit does, and returns the answer.
func (s *script) push(t protocol.CfgType, data []byte) []byte {
	s.t.Helper()
	conn, _ := s.session()
	reply, err := conn.Request(s.t.Context(), t, data)
	if err != nil {
		s.t.Fatal(err)
	}
	return reply
}

// followed starts a host and expects its requests at the beginning of the session.
func (s *script) followed(change ...func(*host.Config)) (*netdev, *host.Host) {
	s.t.Helper()
	d, h, _ := s.world.host("alpha", change...)
	d.up(s.t)
	s.gets("up true", nothingMore, "vlans none")
	return d, h
}

// settled waits until the host has processed the I/O unit's last answer, so that cond holds.
func settled(t *testing.T, h *host.Host, cond func(host.Status) bool) {
	t.Helper()
	testenv.Eventually(t, func() bool { return cond(h.Status()) }, "the host's settings have not settled: %+v",
		later(func() any { return h.Status() }))
}

func is(t protocol.CfgType) func(asked) bool {
	return func(a asked) bool { return a.t == t }
}

// TestFollow changes a netdevice as an administrator does, and the I/O unit accepts the changes.
func TestFollow(t *testing.T) {
	s := newScript(t)
	d, h := s.followed()
	_ = d.SetMAC(net.HardwareAddr{2, 0, 0, 0, 0, 9})
	s.gets("mac 02:00:00:00:00:09")
	_ = d.SetMTU(1400)
	s.gets("mtu 1400")
	_ = d.set(func() { d.want.Up = false })
	s.gets("up false")
	_ = d.set(func() { d.want.Up = true })
	s.gets("up true")
	_ = d.set(func() { d.want.Multicast = append(d.want.Multicast, net.HardwareAddr{1, 0, 0x5e, 0, 0, 7}) })
	s.gets("filter promisc=false allmulti=false [] [01:00:5e:00:00:07]")
	_ = d.SetPromisc(true)
	s.gets("filter promisc=true allmulti=false [] [01:00:5e:00:00:07]", "vlans all")
	_ = d.set(func() { d.want.Promisc, d.want.PromiscSet, d.want.VLANs = false, false, []int{7, 9} })
	s.gets("filter promisc=false allmulti=false [] [01:00:5e:00:00:07]", "vlans 7,9")
	settled(t, h, func(st host.Status) bool { return st.VLANs != nil && st.VLANs.String() == "7,9" })
	if st := h.Status(); st.LastRefusal != nil || st.Filter == nil || len(st.Filter.Multicast) != 1 ||
		st.Netdevice.MAC != "02:00:00:00:00:09" || st.Netdevice.MTU != 1400 {
		t.Errorf("status: %+v", st)
	}

	// In the next session the host requests all these settings; the address is in its hello.
	s.end()
	s.gets("up true", "mtu 1400", "filter promisc=false allmulti=false [] [01:00:5e:00:00:07]", "vlans 7,9")
	if mac := s.hellos[1].MAC.String(); mac != "02:00:00:00:00:09" {
		t.Errorf("the second hello asks for %s", mac)
	}
	if d.mtu != 1400 || d.mac != "02:00:00:00:00:09" {
		t.Errorf("the netdevice has %s and MTU %d", d.mac, d.mtu)
	}
}

// TestFollowNoEcho lets the I/O unit change the netdevice. The host must not report this as an
// administrator's change.
func TestFollowNoEcho(t *testing.T) {
	s := newScript(t)
	d, _ := s.followed()
	s.push(protocol.CfgMAC, protocol.AppendMAC(nil, protocol.MAC{2, 0, 0, 0, 0, 5}))
	s.push(protocol.CfgMTU, protocol.AppendMTU(nil, 1300))
	s.push(protocol.CfgLinkState, protocol.AppendLinkState(nil, protocol.LinkState{Up: false}))
	d.await(t, "the I/O unit's settings", func() bool {
		return d.mac == "02:00:00:00:00:05" && d.mtu == 1300 &&
			!d.carrier
	})
	// A change that the host does report, after all others.
	_ = d.set(func() { d.want.VLANs = []int{3} })
	s.gets("vlans 3")
}

// TestFollowMTU changes the I/O unit's MTU while the administrator has set a smaller one.
func TestFollowMTU(t *testing.T) {
	s := newScript(t)
	d, h := s.followed()
	mtu := func(want int) func(host.Status) bool {
		return func(st host.Status) bool { return st.Netdevice.MTU == want }
	}
	_ = d.SetMTU(1400)
	s.gets("mtu 1400")
	settled(t, h, mtu(1400))
	for _, step := range []struct{ pushed, want int }{{9000, 1400}, {1300, 1300}, {1500, 1400}} {
		reply := s.push(protocol.CfgMTU, protocol.AppendMTU(nil, step.pushed))
		if got, err := protocol.DecodeMTU(reply); got != step.want || err != nil {
			t.Errorf("at %d the host says that it has MTU %d, %v", step.pushed, got, err)
		}
		if d.mtu != step.want {
			t.Errorf("at %d the netdevice has MTU %d, expected %d", step.pushed, d.mtu, step.want)
		}
		if step.want < step.pushed {
			s.gets("mtu 1400")
		}
	}
	// After a reset the netdevice follows only the I/O unit's MTU.
	if err := h.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	settled(t, h, mtu(1500))
	s.push(protocol.CfgMTU, protocol.AppendMTU(nil, 2000))
	if d.mtu != 2000 {
		t.Errorf("the netdevice has MTU %d", d.mtu)
	}
}

// TestFollowMTUCrossing changes the MTU at both ends at the same time. Whichever change comes
// first, the netdevice has to have the smaller MTU in the end.
func TestFollowMTUCrossing(t *testing.T) {
	s := newScript(t)
	d, h := s.followed()
	limit := 1500 // guarded by s.mu
	s.refuses(protocol.CfgDenied, func(a asked) bool {
		mtu, err := protocol.DecodeMTU([]byte(a.data))
		return a.t == protocol.CfgMTU && err == nil && mtu > limit
	})
	both := func(want int) {
		t.Helper()
		d.await(t, "the MTU", func() bool { return d.mtu == want })
		settled(t, h, func(st host.Status) bool { return st.Netdevice.MTU == want })
	}
	push := func(mtu int) {
		s.set(func() { limit = mtu })
		s.push(protocol.CfgMTU, protocol.AppendMTU(nil, mtu))
	}
	for i := range 40 { // each round takes a while: the rate of requests is limited
		ours, theirs := 1400+i%3, 1390+i%20
		_ = d.SetMTU(ours)
		push(theirs)
		both(min(ours, theirs))
		push(1500)
		_ = d.SetMTU(1500)
		both(1500)
	}
}

// TestFollowRefused lets the I/O unit refuse the administrator's changes, and expects that the
// netdevice is set back.
func TestFollowRefused(t *testing.T) {
	for _, status := range []protocol.CfgStatus{protocol.CfgDenied, protocol.CfgFailed, protocol.CfgInvalid} {
		t.Run(status.String(), func(t *testing.T) {
			s := newScript(t)
			d, h := s.followed()
			refusal := func(what, wanted string) {
				t.Helper()
				if r := h.Status().LastRefusal; r == nil || r.What != what || r.Wanted != wanted || r.Reason == "" ||
					r.At.IsZero() {
					t.Errorf("last refusal: %+v, expected %s %s", r, what, wanted)
				}
			}
			s.refuses(status, is(protocol.CfgMAC))
			_ = d.SetMAC(net.HardwareAddr{2, 0, 0, 0, 0, 9})
			d.await(t, "the old address", func() bool { return d.mac == "02:00:00:00:00:01" })
			s.gets("mac 02:00:00:00:00:09")
			refusal("MAC", "02:00:00:00:00:09")

			s.refuses(status, is(protocol.CfgMTU))
			_ = d.SetMTU(8000)
			d.await(t, "the old MTU", func() bool { return d.mtu == 1500 })
			s.gets("mtu 8000")
			refusal("MTU", "8000")

			s.refuses(status, func(a asked) bool {
				f, err := protocol.DecodeReceiveFilter([]byte(a.data))
				return a.t == protocol.CfgFilter && err == nil && f.Promisc
			})
			_ = d.SetPromisc(true)
			d.await(t, "no promisc", func() bool { return !d.want.Promisc })
			s.gets("filter promisc=true allmulti=false [] []")
			refusal("promiscuous mode", "on")
			// By now the host has seen promiscuous mode off. Only then it requests the mode again.
			_ = d.SetMTU(1400)
			s.gets("mtu 1400")
			// The promiscuous mode of a capture cannot be set back, but the rest is requested.
			_ = d.set(func() { d.want.Promisc = true })
			s.gets("filter promisc=true allmulti=false [] []", "filter promisc=false allmulti=true [] []")
			_ = d.set(func() { d.want.Promisc = false })
			s.gets(nothingMore)

			s.refuses(status, func(a asked) bool {
				v, err := protocol.DecodeVLANSet([]byte(a.data))
				return a.t == protocol.CfgVLAN && err == nil && v.Has(30)
			})
			_ = d.set(func() { d.want.VLANs = []int{10, 30, 40} })
			s.gets("vlans 10,30,40", "vlans 10", "vlans 10,30", "vlans 10,40")
			refusal("VLANs", "30")
			_ = d.set(func() { d.want.VLANs, d.want.Trunk = []int{10, 30, 40, 50}, true })
			s.gets("vlans all", "vlans 10,40,50")
			refusal("VLANs", "all")
		})
	}
}

// TestFollowOverMaxMTU sets an MTU above the host's maximum, and expects that the host undoes it
// without a request.
func TestFollowOverMaxMTU(t *testing.T) {
	s := newScript(t)
	d, h := s.followed()
	_ = d.SetMTU(9001)
	d.await(t, "the old MTU", func() bool { return d.mtu == 1500 })
	_ = d.set(func() { d.want.VLANs = []int{3} })
	s.gets("vlans 3")
	if r := h.Status().LastRefusal; r == nil || r.Wanted != "9001" {
		t.Errorf("last refusal: %+v", r)
	}
}

// TestFollowUnsupported has an I/O unit that supports none of the settings, and expects that the
// host requests each one once.
func TestFollowUnsupported(t *testing.T) {
	s := newScript(t)
	s.refuses(protocol.CfgUnsupported, func(a asked) bool {
		return a.t != protocol.CfgMAC ||
			a.data == "\x02\x00\x00\x00\x00\x09"
	})
	d, h := s.followed()
	_ = d.set(func() { d.want.VLANs, d.want.AllMulti, d.want.Up = []int{3}, true, false })
	_ = d.SetMAC(net.HardwareAddr{2, 0, 0, 0, 0, 9})
	d.await(t, "the old address", func() bool { return d.mac == "02:00:00:00:00:01" })
	s.gets("mac 02:00:00:00:00:09")
	_ = d.SetMTU(1400)
	s.gets("mtu 1400")
	d.await(t, "the MTU", func() bool { return d.mtu == 1400 })
	if st := h.Status(); st.Filter != nil || st.VLANs != nil {
		t.Errorf("status: %+v", st)
	}
}

// TestFollowManyGroups sets more groups than fit into a message.
func TestFollowManyGroups(t *testing.T) {
	s := newScript(t)
	d, _ := s.followed()
	many := make([]net.HardwareAddr, protocol.MaxFilterAddresses+1)
	for i := range many {
		many[i] = net.HardwareAddr{1, 0, 0x5e, 0, byte(i >> 8), byte(i)}
	}
	_ = d.set(func() { d.want.Multicast = many })
	s.gets("filter promisc=false allmulti=true [] []")
}

// TestFollowWhileAway changes the netdevice while there is no session.
func TestFollowWhileAway(t *testing.T) {
	s := newScript(t)
	d, h := s.followed()
	s.refuses(protocol.CfgDenied, is(protocol.CfgMAC)) // every hello
	_, end := s.session()
	end()
	d.down(t)
	_ = d.SetMAC(net.HardwareAddr{2, 0, 0, 0, 0, 9})
	_ = d.SetMTU(1400)
	s.await("a hello with the address", func() bool {
		return s.hellos[len(s.hellos)-1].MAC.String() == "02:00:00:00:00:09"
	})
	d.await(t, "the old address", func() bool { return d.mac == "02:00:00:00:00:01" })
	if r := h.Status().LastRefusal; r == nil || r.What != "MAC" {
		t.Errorf("last refusal: %+v", r)
	}
	s.refuses(protocol.CfgOK, is(protocol.CfgMAC))
	d.up(t)
	s.gets("up true", "mtu 1400", nothingMore, "vlans none")
	if d.mtu != 1400 {
		t.Errorf("the netdevice has MTU %d", d.mtu)
	}
}

// TestStatistics reads and clears the I/O unit's counters, and resets the host's settings.
func TestStatistics(t *testing.T) {
	s := newScript(t)
	d, h := s.followed()
	for _, clear := range []bool{false, true} {
		got, err := h.Statistics(t.Context(), clear)
		if err != nil || got != (protocol.Statistics{RxFrames: 7, TxVLAN: 9}) {
			t.Errorf("%+v, %v", got, err)
		}
	}
	s.gets("read statistics", "clear statistics")

	_ = d.SetMAC(net.HardwareAddr{2, 0, 0, 0, 0, 9})
	s.gets("mac 02:00:00:00:00:09")
	_ = d.SetMTU(1400)
	s.gets("mtu 1400")
	_ = d.SetPromisc(true)
	s.gets("filter promisc=true allmulti=false [] []", "vlans all")
	if err := h.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.gets("reset", "up true", nothingMore, "vlans none")
	if d.mac != "02:00:00:00:00:01" || d.mtu != 1500 || d.want.Promisc {
		t.Errorf("after the reset: %s, MTU %d, promisc %t", d.mac, d.mtu, d.want.Promisc)
	}

	s.refuses(protocol.CfgDenied, func(asked) bool { return true })
	var status *messaging.StatusError
	if _, err := h.Statistics(t.Context(), true); !errors.As(err, &status) || status.Status != protocol.CfgDenied {
		t.Errorf("a denied request: %v", err)
	}
	_, end := s.session()
	end()
	d.down(t)
	if _, err := h.Statistics(t.Context(), false); !errors.Is(err, host.ErrNoSession) {
		t.Errorf("without a session: %v", err)
	}
	if err := h.Reset(t.Context()); !errors.Is(err, host.ErrNoSession) {
		t.Errorf("reset without a session: %v", err)
	}
}
