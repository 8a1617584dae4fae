package endpoints

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/host/mirror"
	"github.com/splitnic/splitnic/splitdrv/host/uplink"
	"github.com/splitnic/splitnic/splitdrv/iounit"
)

// gateway is one of several I/O units, with its own card, and a cable to it.
type gateway struct {
	*world
	*cable
	unit *iounit.Unit
	run  *running
}

// gateway starts another I/O unit on the world's fabric.
func (w *world) gateway(name string, change ...func(*iounit.Config)) *gateway {
	w.t.Helper()
	s := &gateway{world: &world{t: w.t, fabric: w.fabric, card: newCard(w.t), device: name, unitKey: w.unitKey,
		hostKey: w.hostKey}}
	s.unit, s.run = s.world.unit(change...)
	s.cable = newCable(w.t, s.world.addr)
	return s
}

func addrs(gateways ...*gateway) (list []string) {
	for _, s := range gateways {
		list = append(list, s.cable.addr)
	}
	return list
}

// with waits until the host has a session with an I/O unit.
func with(t *testing.T, h *host.Host, s *gateway) {
	t.Helper()
	testenv.Eventually(t, func() bool {
		st := h.Status()
		return st.State == host.Connected && st.IOUnit.Address == s.cable.addr
	}, "no session with %s", s.cable.addr)
}

// TestFailover breaks the connection to one I/O unit after the other, and expects fail-overs.
func TestFailover(t *testing.T) {
	t.Run("cold", func(t *testing.T) { testFailover(t, false) })
	t.Run("standby", func(t *testing.T) { testFailover(t, true) })
}

func testFailover(t *testing.T, standby bool) {
	w := newWorld(t)
	one, two := w.gateway("one"), w.gateway("two")
	d, h, _ := w.host("alpha", func(c *host.Config) { c.IOUnits, c.Standby = addrs(one, two), standby })
	d.up(t)
	mac := d.mac
	one.both(d)
	if standby {
		testenv.Eventually(t, func() bool { return h.Status().Failovers.Standby == two.cable.addr }, "nothing on standby")
		if two.card.isUp(mac) || len(two.card.announcements()) != 0 {
			t.Error("the port of a session on standby is up")
		}
		_ = d.set(func() {
			d.onCarrier = func(up bool) {
				if up && !two.card.isUp(mac) {
					t.Error("carrier before the port of the session that was on standby is up")
				}
			}
		})
	}
	var ready []string
	if standby {
		// The host may have the session before the I/O unit counts it.
		testenv.Eventually(t, func() bool { ready = sessionsOf(two); return len(ready) == 1 }, "no session on standby")
	}
	one.cut()
	with(t, h, two)
	d.up(t)
	if standby && !slices.Equal(sessionsOf(two), ready) {
		t.Errorf("not the session that was on standby: %v, %v", sessionsOf(two), ready)
	}
	_ = d.set(func() { d.onCarrier = nil })
	if d.mac != mac {
		t.Errorf("the MAC address changed from %s to %s", mac, d.mac)
	}
	two.both(d)
	if !two.card.isUp(mac) {
		t.Error("the port is down")
	}
	failedOver(t, h, uplink.ReasonDied, 1)
	s := h.Status().Failovers
	if s.Last == nil || s.Last.From != one.cable.addr || s.Last.To != two.cable.addr || s.Last.Took <= 0 ||
		len(s.Last.Stages) == 0 {
		t.Errorf("standby %t: %+v", standby, s)
	}
	one.plug()
	two.cut()
	with(t, h, one)
	d.up(t)
	one.both(d)
	failedOver(t, h, uplink.ReasonDied, 2)
}

// sessionsOf returns the sessions of an I/O unit.
func sessionsOf(g *gateway) (ids []string) {
	for _, h := range g.unit.Status().Hosts {
		ids = append(ids, h.Session)
	}
	return ids
}

// TestNoStandby expects the status to show why there is no standby session, as long as there is
// none.
func TestNoStandby(t *testing.T) {
	w := newWorld(t)
	one, two := w.gateway("one"), w.gateway("two")
	two.cut()
	d, h, _ := w.host("alpha", func(c *host.Config) { c.IOUnits, c.Standby = addrs(one, two), true })
	d.up(t)
	status := func() (standby, why string) {
		s := h.Status().Failovers
		return s.Standby, s.NoStandby
	}
	testenv.Eventually(t, func() bool { s, why := status(); return s == "" && strings.Contains(why, two.cable.addr) },
		"no reason why there is no standby")
	two.plug()
	testenv.Eventually(t, func() bool { s, why := status(); return s == two.cable.addr && why == "" },
		"nothing on standby")
}

// TestStandbyEnds expects the status to show why a standby session has ended, also before the host
// has tried another one.
func TestStandbyEnds(t *testing.T) {
	w := newWorld(t)
	one, two := w.gateway("one"), w.gateway("two")
	d, h, _ := w.host("alpha", func(c *host.Config) {
		c.IOUnits, c.Standby = addrs(one, two), true
		c.RetryMin, c.RetryMax = time.Hour, time.Hour
	})
	d.up(t)
	testenv.Eventually(t, func() bool { return h.Status().Failovers.Standby == two.cable.addr }, "nothing on standby")
	two.cut()
	testenv.Eventually(t, func() bool {
		s := h.Status().Failovers
		return s.Standby == "" && strings.Contains(s.NoStandby, two.cable.addr)
	}, "no reason why there is no standby")
}

// failedOver waits until n fail-overs for this reason are counted. A fail-over is counted a moment
// after its session has begun.
func failedOver(t *testing.T, h *host.Host, why uplink.Reason, n uint64) {
	t.Helper()
	testenv.Eventually(t, func() bool { return h.Status().Failovers.Count[why] == n }, "not %d fail-overs because of %s",
		n, why)
}

// TestFailoverOrder stops the second of three I/O units, and expects the host at the third, and
// then, when that is lost, at the first.
func TestFailoverOrder(t *testing.T) {
	w := newWorld(t)
	one, two, three := w.gateway("one"), w.gateway("two"), w.gateway("three")
	one.cut()
	d, h, _ := w.host("alpha", func(c *host.Config) { c.IOUnits = addrs(one, two, three) })
	d.up(t)
	with(t, h, two)
	one.plug()
	// The host's session is ready before the I/O unit counts it.
	testenv.Eventually(t, func() bool { return len(two.unit.Status().Hosts) == 1 }, "the I/O unit has no host")
	if err := two.run.stop(); err != nil {
		t.Fatal(err)
	}
	with(t, h, three)
	d.up(t)
	three.both(d)
	failedOver(t, h, uplink.ReasonGoodbye, 1)
	three.cut() // the first I/O unit follows the last
	with(t, h, one)
}

// TestDeafUnit has an I/O unit that never answers. The host has to try the next one without waiting
// for the handshake to time out, which does not happen in this test.
func TestDeafUnit(t *testing.T) {
	w := newWorld(t)
	deaf, err := net.Listen("tcp", testenv.Loopback()+":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { deaf.Close() })
	two := w.gateway("two")
	d, h, _ := w.host("alpha", func(c *host.Config) {
		c.IOUnits, c.HandshakeTimeout, c.Patience = append([]string{deaf.Addr().String()}, addrs(two)...), time.Hour, 0
	})
	with(t, h, two)
	d.up(t)
}

// TestRestartBesideDeafUnit restarts an I/O unit while the other one never answers. The host has to
// reconnect as soon as the first is back, without waiting for the other.
func TestRestartBesideDeafUnit(t *testing.T) {
	w := newWorld(t)
	deaf, err := net.Listen("tcp", testenv.Loopback()+":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { deaf.Close() })
	_, unit := w.unit()
	d, h, _ := w.host("alpha", func(c *host.Config) {
		c.IOUnits, c.HandshakeTimeout, c.Patience = []string{w.addr, deaf.Addr().String()}, time.Hour, 0
	})
	d.up(t)
	if err := unit.stop(); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, func() bool { return h.Status().Attempts > 3 }, "attempts with the one that is away")
	w.unit()
	d.up(t)
	w.both(d)
}

// hung starts an I/O unit that authenticates hosts and then hangs, until letGo is called.
func (w *world) hung(name string) (s *gateway, letGo func()) {
	hold := make(chan struct{})
	letGo = sync.OnceFunc(func() { close(hold) })
	s = w.gateway(name, func(c *iounit.Config) {
		open := c.OpenLAN
		c.OpenLAN = func(mac net.HardwareAddr, queues int) (lan.Interface, error) {
			<-hold
			return open(mac, queues)
		}
	})
	w.t.Cleanup(letGo)
	return s, letGo
}

// TestHungUnit has an I/O unit that hangs after the authentication. The host has to try the next
// one without waiting for the handshake to time out, which does not happen in this test. The logged
// error has to be documented.
func TestHungUnit(t *testing.T) {
	w := newWorld(t)
	hung, _ := w.hung("hung")
	two := w.gateway("two")
	read, written := io.Pipe()
	defer written.Close()
	explained := make(chan struct{})
	go func() {
		defer close(explained)
		for in := json.NewDecoder(read); ; {
			var line struct{ IOUnit, Error string }
			if in.Decode(&line) != nil {
				return
			}
			if line.IOUnit == hung.cable.addr && line.Error != "" {
				testenv.Explained(t, line.Error)
			}
		}
	}()
	d, h, run := w.host("alpha", func(c *host.Config) {
		c.IOUnits, c.HandshakeTimeout, c.Patience = addrs(hung, two), time.Hour, 0
		c.Log = slog.New(slog.NewJSONHandler(written, nil))
	})
	with(t, h, two)
	d.up(t)
	two.both(d)
	if err := run.stop(); err != nil {
		t.Error(err)
	}
	written.Close()
	<-explained
}

// TestSlowUnit has an I/O unit that answers late. As no other I/O unit is available, the host has
// to wait for it.
func TestSlowUnit(t *testing.T) {
	w := newWorld(t)
	slow, letGo := w.hung("slow")
	gone, err := net.Listen("tcp", testenv.Loopback()+":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { gone.Close() })
	d, h, _ := w.host("alpha", func(c *host.Config) {
		c.IOUnits, c.HandshakeTimeout, c.Patience = append(addrs(slow), gone.Addr().String()), time.Hour, 0
	})
	c, err := gone.Accept() // the host tries this after the first has not answered for a while
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	letGo()
	with(t, h, slow)
	d.up(t)
	slow.both(d)
}

// TestBlindUnit has an I/O unit that can be reached by its bootstrap address, but not over the
// fabric. There must not be a session with it, nor an announcement of the host on its LAN.
func TestBlindUnit(t *testing.T) {
	w := newWorld(t)
	blind, two := w.gateway("blind"), w.gateway("two")
	w.fabric.Cut("blind")
	_, lone, run := w.host("beta", func(c *host.Config) { c.IOUnits = addrs(blind) })
	testenv.Eventually(t, func() bool { return lone.Status().LastError != "" }, "an attempt that came to nothing")
	testenv.Explained(t, lone.Status().LastError)
	if got := lone.Status().IOUnit.PathMTULimit; got != 0 {
		t.Errorf("path MTU limited to %d bytes, although small packets do not get through either", got)
	}
	if err := run.stop(); err != nil {
		t.Error(err)
	}
	d, h, _ := w.host("alpha", func(c *host.Config) { c.IOUnits, c.Patience = addrs(blind, two), 0 })
	with(t, h, two)
	d.up(t)
	two.both(d)
	if n := h.Status().Sessions; n != 1 {
		t.Errorf("%d sessions, one of them with an I/O unit that no frame reaches", n)
	}
	if heard := blind.card.announcements(); len(heard) != 0 {
		t.Errorf("%d announcements sent the LAN to an I/O unit that no frame reaches", len(heard))
	}
	w.fabric.Heal("blind") // so that its sessions can end in good order
}

// hostStream is a stream of numbered frames from a host, received on the cards of I/O units.
type hostStream struct {
	t       *testing.T
	ctx     context.Context
	mac     string
	readers sync.WaitGroup
	out     chan struct{} // an element for each frame on its way, so that no queue of a card gets full

	mu   sync.Mutex
	came map[uint32]bool
}

// send sends frames of all sizes up to the MTU until stop is closed, and returns their number.
func (s *hostStream) send(d *netdev, stop <-chan struct{}) (n uint32) {
	for {
		select {
		case <-stop:
			return n
		case s.out <- struct{}{}:
		}
		f := from(s.t, s.mac, frame(100+int(n%1300), 2))
		binary.BigEndian.PutUint32(f[len(f)-4:], n)
		if err := d.wire.Send(s.ctx, f); err != nil {
			s.t.Error(err)
			return n
		}
		n++
	}
}

// read receives, in another goroutine, the frames that arrive at a card.
func (s *hostStream) read(g *gateway) {
	wire := g.card.wire(s.mac)
	s.readers.Go(func() {
		buf := make([]byte, 1<<16)
		for {
			f, err := wire.Receive(s.ctx, buf)
			if err != nil {
				return
			}
			s.mu.Lock()
			n := binary.BigEndian.Uint32(f[len(f)-4:])
			if s.came[n] {
				s.t.Errorf("frame %d came twice", n)
			}
			s.came[n] = true
			s.mu.Unlock()
			<-s.out
		}
	})
}

// frames returns the number of frames that have arrived.
func (s *hostStream) frames() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.came)
}

// more waits until n more frames have arrived.
func (s *hostStream) more(n int) {
	s.t.Helper()
	before := s.frames()
	testenv.Eventually(s.t, func() bool { return s.frames() >= before+n }, "no %d frames more", n)
}

// TestFailoverStream commands fail-overs to and fro during a stream of frames, in every mode: no
// frame from the host may be lost. In modes with pools this also holds when the I/O unit in use is
// stopped.
func TestFailoverStream(t *testing.T) {
	for _, mode := range protocol.Modes() {
		t.Run(string(mode), func(t *testing.T) {
			w := newWorld(t)
			one, two := w.gateway("one", unhurried), w.gateway("two", unhurried)
			d, h, _ := w.host("alpha", func(c *host.Config) { c.IOUnits, c.Modes = addrs(one, two), []protocol.Mode{mode} })
			d.up(t)
			ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
			defer cancel()
			s := &hostStream{t: t, ctx: ctx, mac: d.mac, out: make(chan struct{}, 200), came: map[uint32]bool{}}
			stop, sent := make(chan struct{}), make(chan uint32, 1)
			go func() { sent <- s.send(d, stop) }()
			s.read(one)
			const burst = 100
			for i := range 4 {
				s.more(burst)
				to := []*gateway{two, one}[i%2]
				if _, err := h.Failover(ctx, ""); err != nil {
					t.Fatal(err)
				}
				s.read(to)
			}
			if !mode.Sends() {
				s.more(burst)
				if err := one.run.stop(); err != nil {
					t.Fatal(err)
				}
				with(t, h, two)
				s.read(two)
				failedOver(t, h, uplink.ReasonGoodbye, 1)
				if u := h.Status().Failovers.Uncertain; u != 0 {
					t.Errorf("%d frames are uncertain", u)
				}
			}
			s.more(burst)
			close(stop)
			n := int(<-sent)
			testenv.Eventually(t, func() bool { return s.frames() >= n }, "frames are missing")
			if got := s.frames(); got != n {
				t.Errorf("%d of %d frames came", got, n)
			}
			cancel()
			s.readers.Wait()
		})
	}
}

// unhurried gives an I/O unit enough time to end its sessions in good order.
func unhurried(c *iounit.Config) { c.Messaging.FlushTime = time.Minute }

// TestFailBack expects the host to return to the preferred I/O unit when that is available again.
func TestFailBack(t *testing.T) {
	w := newWorld(t)
	one, two := w.gateway("one"), w.gateway("two")
	one.cut()
	d, h, _ := w.host("alpha", func(c *host.Config) { c.IOUnits, c.FailBack = addrs(one, two), time.Millisecond })
	with(t, h, two)
	d.up(t)
	two.both(d)
	one.plug()
	with(t, h, one)
	d.up(t)
	one.both(d)
	failedOver(t, h, uplink.ReasonFailBack, 1)
}

// TestKeepsMAC expects a host to keep the MAC address that the first I/O unit granted, and to
// accept another one from an I/O unit that does not permit it.
func TestKeepsMAC(t *testing.T) {
	w := newWorld(t)
	only := func(mac string) func(*iounit.Config) { return ruled(t, "default:\n  macs: [\""+mac+"\"]\n") }
	one, two, three := w.gateway("one", only("02:aa:*")), w.gateway("two", ruled(t, "default: {macs: any}")),
		w.gateway("three", only("02:bb:*"))
	d, h, _ := w.host("alpha", func(c *host.Config) { c.IOUnits = addrs(one, two, three) })
	d.up(t)
	mac := d.mac
	one.cut()
	with(t, h, two)
	if d.mac != mac || !strings.HasPrefix(mac, "02:aa:") {
		t.Errorf("%s became %s", mac, d.mac)
	}
	two.cut()
	with(t, h, three)
	if !strings.HasPrefix(d.mac, "02:bb:") {
		t.Errorf("the third I/O unit gave %s", d.mac)
	}
}

// TestKeepsMACOverRestart lets another process take over the netdevice after the I/O unit that
// granted its MAC address is gone. The netdevice has to keep the address with the next I/O unit,
// which would otherwise assign another one.
func TestKeepsMACOverRestart(t *testing.T) {
	w := newWorld(t)
	one, two := w.gateway("one", ruled(t, "default:\n  macs: [\"02:aa:*\"]\n")),
		w.gateway("two", ruled(t, "default: {macs: any}"))
	var agreed mirror.Agreement // set by one Run at a time
	change := func(c *host.Config) {
		c.IOUnits, c.KeepCarrier = addrs(one, two), true
		c.OnAgreement = func(a mirror.Agreement) { agreed = a }
	}
	d, _, run := w.host("alpha", change)
	d.up(t)
	mac := d.mac
	for range 2 { // the second time the address was not granted to the previous process
		if err := run.stop(); err != nil {
			t.Fatal(err)
		}
		one.cut()
		last := agreed
		var h *host.Host
		_, h, run = w.host("alpha", change, func(c *host.Config) { c.Netdev, c.History = d, host.History{Agreement: &last} })
		with(t, h, two)
		if d.mac != mac || !strings.HasPrefix(mac, "02:aa:") {
			t.Errorf("%s became %s", mac, d.mac)
		}
	}
}
