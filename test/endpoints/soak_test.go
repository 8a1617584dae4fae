package endpoints

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/direct"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/iounit"
	"github.com/splitnic/splitnic/splitdrv/messaging/porttest"
	"github.com/splitnic/splitnic/vnet"
)

// TestSoakDirect lets four hosts exchange frames in random pairs, directly if the policy permits
// it. Meanwhile the policy forbids and permits direct connections, and hosts become promiscuous,
// end and die. Each frame that arrives has to be one that was sent to this host, unchanged and in
// order. All frames have to arrive, except those of hosts that end, and those that the hosts count
// as lost or uncertain. SPLITNIC_SOAK_CYCLES is how often pairs are drawn, and SPLITNIC_SEED is the
// seed.
func TestSoakDirect(t *testing.T) {
	cycles := fromEnvironment(t, "SPLITNIC_SOAK_CYCLES", 16)
	seed := fromEnvironment(t, "SPLITNIC_SEED", uint64(time.Now().UnixNano()))
	t.Logf("SPLITNIC_SEED=%d", seed)
	w := newWorld(t)
	often := func(c *iounit.Config) { c.DirectRest = time.Millisecond } // the events end many connections
	u, _ := w.unit(directly, often, ruled(t, soakPolicy+"}"))
	s := &directSoak{t: t, w: w, unit: u, flows: map[uint32]*flow{}}
	t.Cleanup(s.stop)
	for _, name := range []string{"alpha", "beta", "gamma", "delta"} {
		s.hosts = append(s.hosts, s.start(name))
	}
	for number := range cycles {
		s.cycle(number, rand.New(rand.NewPCG(seed, number)))
		if t.Failed() {
			t.Fatalf("cycle %d of seed %d", number, seed)
		}
	}
	for _, h := range s.hosts {
		s.direct += h.host.Status().Direct.Total.InFrames
	}
	t.Logf("%d cycles, %d frames, %d of them directly; %v", cycles, s.came.Load(), s.direct, s.events)
	if s.direct == 0 {
		t.Error("no frame came directly")
	}
}

// soakPolicy is the beginning of the policy.
const soakPolicy = "default: {max-sessions: 16, promiscuous: yes"

func fromEnvironment(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text, ok := os.LookupEnv(name)
	if !ok {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 0, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// directSoak is an I/O unit whose hosts exchange frames.
type directSoak struct {
	t      *testing.T
	w      *world
	unit   *iounit.Unit
	hosts  []*soakHost
	came   atomic.Uint64
	direct uint64 // frames that arrived directly at hosts that have ended
	events [soakEvents]int

	mu    sync.Mutex // guards the fields below, and soakHost.wire
	flows map[uint32]*flow
}

// Events in the middle of a cycle.
const (
	soakNothing = iota
	soakForbid  // the policy forbids direct connections
	soakPromisc // a host becomes promiscuous
	soakEnd     // a host ends in good order
	soakDie     // a host's device dies, and then its process
	soakEvents
)

// soakHost is a host, until it ends.
type soakHost struct {
	*netdev
	name    string
	mac     string
	port    *porttest.Wire // behind its port on the LAN
	host    *host.Host
	run     *running
	ctx     context.Context
	cancel  context.CancelFunc
	workers sync.WaitGroup
}

func (s *directSoak) start(name string) *soakHost {
	s.t.Helper()
	h := &soakHost{name: name}
	h.netdev, h.host, h.run = s.w.host(name, makesDirect)
	h.up(s.t)
	h.mac = h.netdev.mac
	h.ctx, h.cancel = context.WithCancel(context.Background())
	h.port = s.w.card.wire(h.mac)
	h.workers.Go(func() { s.take(h) })
	h.workers.Go(func() { s.pass(h) })
	return h
}

func (s *directSoak) stop() {
	for _, h := range s.hosts {
		h.cancel()
	}
	for _, h := range s.hosts {
		h.workers.Wait()
	}
}

// pass is the LAN: it forwards the frames from a host's port to the other hosts.
func (s *directSoak) pass(h *soakHost) {
	buf := make([]byte, 1<<17)
	for {
		f, err := h.port.Receive(h.ctx, buf)
		if err != nil {
			return
		}
		mac := protocol.MAC(f[vnet.HdrLen:]).String()
		s.mu.Lock()
		var to *soakHost
		for _, x := range s.hosts {
			if x.mac == mac && x.ctx.Err() == nil {
				to = x
			}
		}
		s.mu.Unlock()
		if to != nil && to != h {
			// This may fail if the receiving host is about to end.
			_ = to.port.Send(to.ctx, f)
		}
	}
}

// take receives and checks the frames that arrive at a host.
func (s *directSoak) take(h *soakHost) {
	buf, want := make([]byte, 1<<17), make([]byte, 1<<11)
	for {
		f, err := h.wire.Receive(h.ctx, buf)
		if err != nil {
			return
		}
		s.came.Add(1)
		key := binary.BigEndian.Uint32(f[vnet.HdrLen+14:])
		s.mu.Lock()
		x := s.flows[key]
		s.mu.Unlock()
		if x == nil || x.to.name != h.name {
			s.t.Errorf("a frame of flow %d came to %s", key, h.name)
			continue
		}
		n, next := binary.BigEndian.Uint64(f[vnet.HdrLen+18:]), x.next.Load()
		switch {
		case !bytes.Equal(f, x.fill(want, n)):
			s.t.Errorf("%s: a frame that says that it is number %d is not as it was sent", x, n)
		case n < next:
			s.t.Errorf("%s: frame %d came when %d was expected", x, n, next)
		default:
			x.got.Add(1)
			x.next.Store(n + 1)
		}
	}
}

// flow is frames from one host to another.
type flow struct {
	key       uint32
	from, to  *soakHost
	head      []byte // virtio and Ethernet header
	next, got atomic.Uint64
	sent      atomic.Uint64
	counted   uint64      // frames that both hosts had counted as lost before the flow
	lossy     atomic.Bool // set if one of the hosts ends
	cancel    context.CancelFunc
	done      chan struct{}
}

func (x *flow) String() string {
	return fmt.Sprintf("flow %d, %s to %s", x.key, x.from.name, x.to.name)
}

// fill makes frame n. Its length and content follow from n and the key.
func (x *flow) fill(buf []byte, n uint64) []byte {
	r := (n + uint64(x.key)<<32) * 0x9e3779b97f4a7c15
	f := buf[:len(x.head)+50+int(r>>32%1400)]
	copy(f, x.head)
	at := len(x.head)
	binary.BigEndian.PutUint32(f[at:], x.key)
	binary.BigEndian.PutUint64(f[at+4:], n)
	for i := at + 12; i < len(f); i++ {
		f[i] = byte(r>>8) + byte(i)
	}
	return f
}

// flow begins a flow.
func (s *directSoak) flow(from, to *soakHost) *flow {
	ctx, cancel := context.WithCancel(from.ctx)
	head := numbered(s.t, from.netdev, to.netdev, 0)[:vnet.HdrLen+vnet.EthLen]
	s.mu.Lock()
	x := &flow{key: uint32(len(s.flows)), from: from, to: to, head: head, cancel: cancel, done: make(chan struct{})}
	x.counted = from.lost() + to.lost()
	s.flows[x.key] = x
	s.mu.Unlock()
	go func() {
		defer close(x.done)
		const (
			ahead = 128   // frames on their way at most: each queue between the hosts holds as many
			looks = 20000 // checks, after which the last of them count as lost
		)
		buf := make([]byte, 1<<11)
		for n := uint64(0); ; n++ {
			for i := 0; n > x.next.Load()+ahead && i < looks && ctx.Err() == nil; i++ {
				time.Sleep(50 * time.Microsecond)
			}
			// Send does not stop before the frame is sent, unless the host ends.
			if ctx.Err() != nil || from.wire.Send(from.ctx, x.fill(buf, n)) != nil {
				return
			}
			x.sent.Add(1)
		}
	}()
	return x
}

// moves waits for this number of further frames of a flow.
func (x *flow) moves(t *testing.T, frames uint64) {
	t.Helper()
	was := x.next.Load()
	testenv.Eventually(t, func() bool { return t.Failed() || x.next.Load() >= was+frames },
		"frames of %s: %d of %d, at first %d", x, later(func() any { return x.next.Load() }),
		later(func() any { return x.sent.Load() }), was)
}

// finish ends a flow, and waits until all its frames have arrived, except those counted as lost.
func (x *flow) finish(t *testing.T) {
	t.Helper()
	x.cancel()
	<-x.done
	testenv.Eventually(t, func() bool {
		return t.Failed() || x.lossy.Load() || x.sent.Load()-x.got.Load() <= x.from.lost()+x.to.lost()-x.counted
	}, "the last frames of %s", x)
}

// lost returns how many frames a host counts as lost or uncertain with direct connections.
func (h *soakHost) lost() uint64 {
	c := h.host.Status().Direct.Total
	return c.Lost + c.Uncertain
}

// cycle draws pairs of hosts, lets them exchange frames, and makes a random event happen.
func (s *directSoak) cycle(number uint64, r *rand.Rand) {
	t := s.t
	r.Shuffle(len(s.hosts), func(i, j int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.hosts[i], s.hosts[j] = s.hosts[j], s.hosts[i]
	})
	var flows []*flow
	for i := 0; i < len(s.hosts); i += 2 {
		a, b := s.hosts[i], s.hosts[i+1]
		flows = append(flows, s.flow(a, b), s.flow(b, a))
	}
	move := func(lossy bool) {
		t.Helper()
		for _, x := range flows {
			if lossy || !x.lossy.Load() {
				x.moves(t, 1+uint64(r.IntN(400)))
			}
		}
	}
	move(true)
	if r.IntN(4) > 0 { // otherwise the event may happen before or during the set-up
		for i := 0; i < len(s.hosts) && !t.Failed(); i += 2 {
			a, b := s.hosts[i], s.hosts[i+1]
			testenv.Eventually(t, func() bool { return t.Failed() || isDirect(a, b) && isDirect(b, a) },
				"a direct connection of %s and %s in cycle %d", a.name, b.name, number)
		}
	}
	h := s.hosts[0]
	if r.IntN(3) == 0 { // so that frames are on their way
		s.w.fabric.Delay(h.name, time.Duration(r.IntN(500))*time.Microsecond)
		defer s.w.fabric.Delay(h.name, 0)
	}
	event := r.IntN(soakEvents)
	s.events[event]++
	switch event {
	case soakForbid:
		s.unit.SetPolicy(rules(t, soakPolicy+", direct: no}"))
		move(true)
		s.unit.SetPolicy(rules(t, soakPolicy+"}"))
	case soakPromisc:
		_ = h.SetPromisc(true)
		move(true)
		_ = h.SetPromisc(false)
	case soakEnd, soakDie:
		for _, x := range flows {
			if x.from == h || x.to == h {
				x.lossy.Store(true)
			}
		}
		if event == soakDie {
			s.w.fabric.Kill(h.name)
		}
		if err := h.run.stop(); err != nil {
			t.Error(err)
		}
		h.cancel()
		h.workers.Wait()
		s.direct += h.host.Status().Direct.Total.InFrames
	}
	move(false)
	for _, x := range flows {
		x.finish(t)
	}
	if event == soakEnd || event == soakDie {
		again := s.start(h.name)
		s.mu.Lock()
		s.hosts[0] = again
		s.mu.Unlock()
	}
}

// isDirect reports whether host a has an established direct connection with host b.
func isDirect(a, b *soakHost) bool {
	for _, c := range a.host.Status().Direct.Connections {
		if c.Peer == b.name && c.State == direct.Established {
			return true
		}
	}
	return false
}
