package endpoints

import (
	"context"
	"encoding/binary"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/direct"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/iounit"
	"github.com/splitnic/splitnic/splitdrv/iounit/policy"
	"github.com/splitnic/splitnic/splitdrv/messaging/porttest"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/vnet"
)

// lanSwitch forwards frames between the ports on a card, as a switch does.
type lanSwitch struct {
	passed  atomic.Uint64 // frames, without markers
	workers sync.WaitGroup
	cancel  context.CancelFunc
}

// newLANSwitch connects the ports with these addresses.
func (w *world) newLANSwitch(macs ...string) *lanSwitch { return w.newLosingSwitch(nil, macs...) }

// newLosingSwitch is newLANSwitch for a LAN that loses the markers for which loses returns true.
// loses may be nil.
func (w *world) newLosingSwitch(loses func(marker []byte) bool, macs ...string) *lanSwitch {
	ctx, cancel := context.WithCancel(context.Background())
	s := &lanSwitch{cancel: cancel}
	wires := make(map[string]*porttest.Wire) // of the ports that exist now, by MAC address
	for _, m := range macs {
		wires[m] = w.card.wire(m)
	}
	for _, in := range wires {
		s.workers.Go(func() {
			buf := make([]byte, 1<<17)
			for {
				f, err := in.Receive(ctx, buf)
				if err != nil {
					return
				}
				if loses != nil && protocol.IsMarker(f) && loses(f) {
					continue
				}
				if f[vnet.HdrLen+12] == 0x08 {
					s.passed.Add(1)
				}
				if to := wires[protocol.MAC(f[vnet.HdrLen:]).String()]; to != nil && to.Send(ctx, f) != nil {
					return
				}
			}
		})
	}
	w.t.Cleanup(s.stop)
	return s
}

func (s *lanSwitch) stop() {
	s.cancel()
	s.workers.Wait()
}

// numbered returns a frame from netdevice a to netdevice b with number n.
func numbered(t *testing.T, a, b *netdev, n uint64) []byte {
	f := from(t, a.mac, frame(80, 1))
	m, err := protocol.ParseMAC(b.mac)
	if err != nil {
		t.Fatal(err)
	}
	copy(f[vnet.HdrLen:], m[:])
	binary.BigEndian.PutUint64(f[vnet.HdrLen+14:], n)
	return f
}

// stream sends numbered frames from a to b without a pause, until it is stopped, and checks at b
// that each arrives once and in order.
type stream struct {
	sent, seen atomic.Uint64
	sending    sync.Mutex // held while a frame is sent
	cancel     context.CancelFunc
	stop       func()
}

func (s *stream) send(ctx context.Context, a *netdev, f []byte) error {
	s.sending.Lock()
	defer s.sending.Unlock()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	err := a.wire.Send(ctx, f)
	if err == nil {
		s.sent.Add(1)
	}
	return err
}

// pause stops sending, until resume, and waits until all sent frames have arrived.
func (s *stream) pause(t *testing.T) {
	t.Helper()
	s.sending.Lock()
	testenv.Eventually(t, func() bool { return s.seen.Load() == s.sent.Load() }, "all frames of the stream")
}

func (s *stream) resume() { s.sending.Unlock() }

func newStream(t *testing.T, a, b *netdev) *stream {
	t.Helper()
	const ahead = 256 // frames on their way at most: each queue between a and b holds as many
	ctx, cancel := context.WithCancel(context.Background())
	s := &stream{cancel: cancel}
	f := numbered(t, a, b, 0)
	var workers sync.WaitGroup
	workers.Go(func() {
		for n := uint64(1); ctx.Err() == nil; n++ {
			for n > s.seen.Load()+ahead && ctx.Err() == nil {
				time.Sleep(50 * time.Microsecond)
			}
			binary.BigEndian.PutUint64(f[vnet.HdrLen+14:], n)
			if s.send(ctx, a, f) != nil {
				return
			}
		}
	})
	workers.Go(func() {
		buf := make([]byte, 1<<17)
		for {
			f, err := b.wire.Receive(ctx, buf)
			if err != nil {
				return
			}
			n := binary.BigEndian.Uint64(f[vnet.HdrLen+14:])
			if want := s.seen.Load() + 1; n != want {
				t.Errorf("frame %d came, %d was next", n, want)
				cancel()
				return
			}
			s.seen.Store(n)
		}
	})
	var once sync.Once
	s.stop = func() {
		once.Do(func() {
			cancel()
			workers.Wait()
		})
	}
	t.Cleanup(s.stop)
	return s
}

// moves waits until this number of further frames has arrived.
func (s *stream) moves(t *testing.T, frames uint64) {
	t.Helper()
	was := s.seen.Load()
	testenv.Eventually(t, func() bool { return s.seen.Load() >= was+frames }, "frames of the stream: %d seen, %d sent",
		later(func() any { return s.seen.Load() }), later(func() any { return s.sent.Load() }))
}

// established reports whether a host has exactly one direct connection, and it is established.
func established(h *host.Host) bool {
	c := h.Status().Direct.Connections
	return len(c) == 1 && c[0].State == direct.Established
}

// directly makes an I/O unit offer direct connections as soon as two hosts exchange frames.
func directly(c *iounit.Config) { c.Direct, c.DirectAfter = true, 0 }

// makesDirect makes a host use direct connections. The host has enough time to drain them at the
// end, however busy the machine is.
func makesDirect(c *host.Config) { c.Direct.On, c.Direct.Drain = true, time.Second }

// TestDirectPath expects two hosts to exchange frames directly as soon as they exchange any, and
// through the I/O unit when its policy no longer permits direct connections. Each frame has to
// arrive once and in order, and none through the LAN while the direct connection lasts.
func TestDirectPath(t *testing.T) {
	w := newWorld(t)
	u, _ := w.unit(directly)
	a, ha, _ := w.host("alpha", makesDirect)
	b, hb, _ := w.host("beta", makesDirect)
	a.up(t)
	b.up(t)
	lan := w.newLANSwitch(a.mac, b.mac)
	pairs := len(w.fabric.QueuePairs("alpha"))
	there, back := newStream(t, a, b), newStream(t, b, a)
	for range 3 {
		testenv.Eventually(t, func() bool { return established(ha) && established(hb) }, "a direct connection")
		there.moves(t, 1000)
		back.moves(t, 1000)
		passed := lan.passed.Load()
		there.moves(t, 1000)
		back.moves(t, 1000)
		if now := lan.passed.Load(); now != passed {
			t.Errorf("%d frames went through the LAN beside a direct connection", now-passed)
		}
		p, err := policy.Parse("policy.yaml", []byte("default: {direct: no}"))
		if err != nil {
			t.Fatal(err)
		}
		u.SetPolicy(p)
		none := func(h *host.Host) bool { return len(h.Status().Direct.Connections) == 0 }
		testenv.Eventually(t, func() bool { return none(ha) && none(hb) }, "the end of the direct connection")
		testenv.Eventually(t, func() bool { return len(w.fabric.QueuePairs("alpha")) == pairs },
			"the end of the queue pairs of the direct connection")
		there.moves(t, 1000)
		back.moves(t, 1000)
		if lan.passed.Load() == passed {
			t.Error("no frame went through the LAN without a direct connection")
		}
		u.SetPolicy(policy.Default())
	}
	if n := u.Status().Direct; n.Unanswered > 0 {
		t.Errorf("%+v", n)
	}
	for _, h := range []*host.Host{ha, hb} {
		n := h.Status().Direct.Total
		dropped := n.Lost + n.Uncertain + n.Full + n.Source + n.Destination + n.VLAN + n.Malformed
		if dropped != 0 || n.Ended < 3 || n.OutFrames < 3000 {
			t.Errorf("%+v", n)
		}
	}
}

// pair is two hosts with a direct connection, and a stream in each direction.
type pair struct {
	t           *testing.T
	a, b        *netdev
	ha, hb      *host.Host
	runB        *running
	lan         *lanSwitch
	there, back *stream
}

func (w *world) pair(change ...func(*host.Config)) *pair {
	w.t.Helper()
	p := &pair{t: w.t}
	change = append([]func(*host.Config){makesDirect}, change...)
	p.a, p.ha, _ = w.host("alpha", change...)
	p.b, p.hb, p.runB = w.host("beta", change...)
	p.a.up(w.t)
	p.b.up(w.t)
	p.lan = w.newLANSwitch(p.a.mac, p.b.mac)
	p.there, p.back = newStream(w.t, p.a, p.b), newStream(w.t, p.b, p.a)
	p.established()
	return p
}

func (p *pair) established() {
	p.t.Helper()
	testenv.Eventually(p.t, func() bool { return established(p.ha) && established(p.hb) }, "a direct connection")
}

func (p *pair) moves(frames uint64) {
	p.t.Helper()
	p.there.moves(p.t, frames)
	p.back.moves(p.t, frames)
}

// direct waits for frames of both streams, and expects that none goes through the LAN.
func (p *pair) direct() {
	p.t.Helper()
	p.moves(300)
	passed := p.lan.passed.Load()
	p.moves(1000)
	if now := p.lan.passed.Load(); now != passed {
		p.t.Errorf("%d frames went through the LAN beside a direct connection", now-passed)
	}
}

// rest ends the streams after all sent frames have arrived.
func (p *pair) rest() {
	for _, s := range []*stream{p.there, p.back} {
		s.pause(p.t)
		s.cancel()
		s.resume()
		s.stop()
	}
}

func (p *pair) id() session.DirectID { return p.ha.Status().Direct.Connections[0].ID }

// TestDirectPathModes sets up a direct connection in each transfer mode.
func TestDirectPathModes(t *testing.T) {
	for _, mode := range protocol.Modes() {
		t.Run(string(mode), func(t *testing.T) {
			w := newWorld(t)
			w.unit(directly)
			p := w.pair(func(c *host.Config) { c.Modes = []protocol.Mode{mode} })
			p.direct()
			c := p.ha.Status().Direct.Connections[0]
			if c.Mode != mode || c.Traffic == nil || c.Traffic.Channels[0].TxFrames < 1000 || c.Counts.OutFrames < 1000 {
				t.Errorf("%+v", c)
			}
		})
	}
}

// TestDirectPathSlow has a fabric on which an answer takes longer than a second. Hosts whose peer
// time-out allows for this have to get a direct connection at the first try.
func TestDirectPathSlow(t *testing.T) {
	w := newWorld(t)
	u, _ := w.unit(directly)
	a, ha, _ := w.host("alpha", makesDirect)
	b, hb, _ := w.host("beta", makesDirect)
	a.up(t)
	b.up(t)
	w.newLANSwitch(a.mac, b.mac)
	w.fabric.Delay("alpha", 530*time.Millisecond)
	s := newStream(t, a, b)
	testenv.Eventually(t, func() bool { return u.Status().Direct.Starts == 1 }, "the exchange through the I/O unit")
	testenv.Eventually(t, func() bool {
		c := ha.Status().Direct.Connections
		return len(c) == 1 && c[0].Traffic != nil
	}, "the peer's answer over the fabric")
	testenv.Eventually(t, func() bool { return established(ha) && established(hb) }, "a direct connection")
	if n := u.Status().Direct; n.Offers != 1 || n.Starts != 1 {
		t.Errorf("%+v", n)
	}
	w.fabric.Delay("alpha", 0)
	s.moves(t, 1000)
}

// TestDirectPathFailover breaks the connections to the I/O unit. Both hosts have to keep their
// direct connection, which the next I/O unit permits, and no frame may be lost.
func TestDirectPathFailover(t *testing.T) {
	w := newWorld(t)
	grace := func(c *iounit.Config) { c.DirectGrace = time.Minute }
	one, two := w.gateway("one", directly, grace), w.gateway("two", directly, grace)
	w.card = one.card
	p := w.pair(func(c *host.Config) { c.IOUnits, c.Direct.Grace = addrs(one, two), time.Minute })
	p.direct()
	id := p.id()
	one.cut()
	with(t, p.ha, two)
	with(t, p.hb, two)
	p.established()
	p.direct()
	testenv.Eventually(t, func() bool { return two.unit.Status().Direct.Kept == 1 }, "the other I/O unit's permission")
	if now := p.id(); now != id {
		t.Errorf("another direct connection %v, not %v", now, id)
	}
}

// TestDirectPathSwitch moves one of two hosts to another I/O unit. The old I/O unit ends the
// direct connection at the other host only, and no frame may be lost by this.
func TestDirectPathSwitch(t *testing.T) {
	w := newWorld(t)
	grace := func(c *iounit.Config) { c.DirectGrace = time.Minute }
	one, two := w.gateway("one", directly, grace), w.gateway("two", directly, grace)
	w.card = one.card
	p := w.pair(func(c *host.Config) { c.IOUnits, c.Direct.Grace = addrs(one, two), time.Minute })
	p.direct()
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	if _, err := p.ha.Failover(ctx, two.cable.addr); err != nil {
		t.Fatal(err)
	}
	ended := func(h *host.Host) bool {
		d := h.Status().Direct
		return len(d.Connections) == 0 && d.Total.Ended == 1
	}
	testenv.Eventually(t, func() bool { return ended(p.ha) && ended(p.hb) }, "the end of the direct connection")
	a, b := p.ha.Status().Direct.Total, p.hb.Status().Direct.Total
	if a.OutFrames != b.InFrames || b.OutFrames != a.InFrames || a.Lost+a.Uncertain+b.Lost+b.Uncertain > 0 {
		t.Errorf("alpha %+v\nbeta %+v", a, b)
	}
}

// TestDirectPathGrace lets two hosts fail over to an I/O unit that does not permit their direct
// connection, and expects its end.
func TestDirectPathGrace(t *testing.T) {
	w := newWorld(t)
	one, two := w.gateway("one", directly), w.gateway("two")
	w.card = one.card
	p := w.pair(func(c *host.Config) { c.IOUnits, c.Direct.Grace = addrs(one, two), 10*time.Millisecond })
	one.cut()
	with(t, p.ha, two)
	with(t, p.hb, two)
	none := func(h *host.Host) bool { return len(h.Status().Direct.Connections) == 0 }
	testenv.Eventually(t, func() bool { return none(p.ha) && none(p.hb) }, "the end of the direct connection")
}

// TestDirectPathBreaks lets the direct connection fail while no frame is on its way, and expects
// later frames to go through the I/O unit again.
func TestDirectPathBreaks(t *testing.T) {
	w := newWorld(t)
	w.unit(directly)
	toUnit := map[uint32]bool{}
	a, ha, _ := w.host("alpha", makesDirect)
	b, hb, _ := w.host("beta", makesDirect)
	a.up(t)
	b.up(t)
	for _, q := range w.fabric.QueuePairs("alpha") {
		toUnit[q.Num] = true
	}
	lan := w.newLANSwitch(a.mac, b.mac)
	s := newStream(t, a, b)
	testenv.Eventually(t, func() bool { return established(ha) && established(hb) }, "a direct connection")
	s.moves(t, 1000)
	s.pause(t)
	id := ha.Status().Direct.Connections[0].ID
	w.fabric.OnSend("alpha", func(qpn uint32, _ fabric.SendWR) fabric.Status {
		if toUnit[qpn] {
			return fabric.StatusSuccess
		}
		return fabric.StatusRetryExcErr
	})
	passed := lan.passed.Load()
	gone := func(h *host.Host) bool {
		c := h.Status().Direct.Connections
		return len(c) == 0 || c[0].ID != id
	}
	testenv.Eventually(t, func() bool { return gone(ha) && gone(hb) }, "the end of the direct connection")
	w.fabric.OnSend("alpha", nil)
	s.resume()
	s.moves(t, 1000)
	testenv.Eventually(t, func() bool { return lan.passed.Load() > passed }, "frames through the LAN")
}

// TestDirectPathIdle expects the end of an unused connection.
func TestDirectPathIdle(t *testing.T) {
	w := newWorld(t)
	w.unit(directly)
	p := w.pair(func(c *host.Config) { c.Direct.Idle = 100 * time.Millisecond })
	p.rest()
	none := func(h *host.Host) bool { return len(h.Status().Direct.Connections) == 0 }
	testenv.Eventually(t, func() bool { return none(p.ha) && none(p.hb) }, "the end of an idle connection")
}

// TestDirectPathStops stops one of the hosts. The other host has to remove the connection, and to
// get a new one when its peer is back.
func TestDirectPathStops(t *testing.T) {
	w := newWorld(t)
	w.unit(directly)
	p := w.pair()
	p.direct()
	id := p.id()
	p.rest()
	if err := p.runB.stop(); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, func() bool { return len(p.ha.Status().Direct.Connections) == 0 }, "the end of the connection")
	mac := p.b.mac
	p.b, p.hb, _ = w.host("beta", makesDirect)
	p.b.up(t)
	if p.b.mac != mac {
		t.Fatalf("the host that comes back has %s, and had %s", p.b.mac, mac)
	}
	p.lan.stop()
	p.lan = w.newLANSwitch(p.a.mac, p.b.mac)
	p.there, p.back = newStream(t, p.a, p.b), newStream(t, p.b, p.a)
	p.established()
	p.direct()
	if p.id() == id {
		t.Error("the same connection")
	}
}

// TestDirectPathUnwanted has one host without direct connections, and expects all frames to go
// through the LAN.
func TestDirectPathUnwanted(t *testing.T) {
	w := newWorld(t)
	w.unit(directly)
	a, ha, _ := w.host("alpha", makesDirect)
	b, hb, _ := w.host("beta")
	a.up(t)
	b.up(t)
	lan := w.newLANSwitch(a.mac, b.mac)
	newStream(t, a, b).moves(t, 3000)
	if lan.passed.Load() < 3000 {
		t.Error("frames did not go through the LAN")
	}
	for _, h := range []*host.Host{ha, hb} {
		if s := h.Status().Direct; len(s.Connections) != 0 || s.Total.Ended != 0 {
			t.Errorf("%+v", s)
		}
	}
}

// TestDirectPathMarkersLost has a LAN that loses all markers. While the hosts try to set up a
// direct connection, frames have to go on through the I/O unit, without waiting for the end of
// the try.
func TestDirectPathMarkersLost(t *testing.T) {
	w := newWorld(t)
	w.unit(directly)
	a, ha, _ := w.host("alpha", makesDirect, func(c *host.Config) { c.Direct.Answer = 3 * time.Second })
	b, _, _ := w.host("beta", makesDirect)
	a.up(t)
	b.up(t)
	type try struct {
		nonce  protocol.MarkerNonce
		passed uint64 // frames that had passed the LAN when the first marker arrived
	}
	tries := map[string]try{} // by sender
	var mu sync.Mutex
	between := map[string]uint64{} // most frames between two markers of one try, by sender
	var lan *lanSwitch
	ready := make(chan struct{})
	lan = w.newLosingSwitch(func(f []byte) bool {
		<-ready
		m, ok := protocol.DecodeMarker(f)
		if !ok {
			t.Error("a marker that is none")
			return true
		}
		mu.Lock()
		defer mu.Unlock()
		from, passed := protocol.MAC(f[vnet.HdrLen+6:]).String(), lan.passed.Load()
		if last := tries[from]; last.nonce != m.Nonce {
			tries[from] = try{m.Nonce, passed}
		} else {
			between[from] = max(between[from], passed-last.passed)
		}
		return true
	}, a.mac, b.mac)
	close(ready)
	there := newStream(t, a, b)
	testenv.Eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return between[a.mac] > 300 // more than can be on their way
	}, "frames while markers are lost")
	testenv.Eventually(t, func() bool { return ha.Status().Direct.Total.Ended > 0 }, "the end of a try")
	there.moves(t, 1000)
	if n := ha.Status().Direct.Total; n.OutFrames+n.Lost+n.Uncertain+n.Full > 0 {
		t.Errorf("%+v", n)
	}
}

// TestDirectPathPeers has a host with three peers and at most one direct connection at a time: each
// new connection has to replace the least recently used one.
func TestDirectPathPeers(t *testing.T) {
	w := newWorld(t)
	w.unit(directly)
	one := func(c *host.Config) { c.Direct.Peers = 1 }
	a, ha, _ := w.host("alpha", makesDirect, one)
	a.up(t)
	for _, name := range []string{"beta", "gamma", "delta"} {
		b, hb, _ := w.host(name, makesDirect)
		b.up(t)
		lan := w.newLANSwitch(a.mac, b.mac)
		s := newStream(t, a, b)
		testenv.Eventually(t, func() bool {
			c := ha.Status().Direct.Connections
			return established(hb) && len(c) == 1 && c[0].Peer == name && c[0].State == direct.Established
		}, "a direct connection to %s", name)
		s.moves(t, 500)
		s.stop()
		lan.stop()
	}
}
