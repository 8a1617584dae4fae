package messaging_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/vnet"
)

// TestChaos makes sessions with random configurations, sends random frames through them over a
// fabric that delays and stalls, and ends some of them in random ways. SPLITNIC_SEED repeats
// one session, except for what depends on scheduling. SPLITNIC_SOAK is the least duration of
// the test.
func TestChaos(t *testing.T) {
	var sum tally
	sessions := 0
	one := func(seed uint64) {
		sessions++
		t.Run(fmt.Sprintf("session %d", sessions), func(t *testing.T) {
			t.Logf("SPLITNIC_SEED=%d", seed)
			c := newChaos(t, seed)
			c.run()
			sum.add(c.a.conn.Stats())
			sum.add(c.b.conn.Stats())
		})
	}
	if s, ok := os.LookupEnv("SPLITNIC_SEED"); ok {
		seed, err := strconv.ParseUint(s, 0, 64)
		if err != nil {
			t.Fatal(err)
		}
		one(seed)
		return
	}
	soak := time.Duration(0)
	if s, ok := os.LookupEnv("SPLITNIC_SOAK"); ok {
		var err error
		if soak, err = time.ParseDuration(s); err != nil {
			t.Fatal(err)
		}
	}
	seed := uint64(time.Now().UnixNano())
	// At least 4 sessions, also on a busy machine.
	for end := time.Now().Add(soak); (sessions < 4 || time.Now().Before(end)) && !t.Failed(); seed++ {
		one(seed)
	}
	t.Logf("%d sessions: %+v", sessions, sum)
}

// tally has the sums of counters over all sessions.
type tally struct {
	frames, indicated, lost, late, granted, given, returned uint64
	bound, invalidated, byPeer                              uint64 // windows
}

func (y *tally) add(s messaging.Stats) {
	for _, c := range s.Channels {
		y.frames += c.RxFrames
		y.indicated += c.RxIndicated
		y.lost += c.RxLost
		y.late += c.RxLate
		y.bound += c.WindowsBound
		y.invalidated += c.WindowsInvalidated
		y.byPeer += c.WindowsInvalidatedByPeer
	}
	y.granted += s.PoolsGranted
	y.given += s.PoolsGiven
	y.returned += s.PoolsReturned
}

// chaos is one random session.
type chaos struct {
	t    *testing.T
	r    *rand.Rand
	mode protocol.Mode
	mtu  int
	size int // length of the longest frame
	n    *fabrictest.Network
	a, b *endpoint

	first   map[string]int // number of pools that each endpoint lends at first
	budgets []*messaging.Budget
	late    fabric.Device
	dying   atomic.Bool // the session is being ended
}

func newChaos(t *testing.T, seed uint64) *chaos {
	r := rand.New(rand.NewPCG(seed, 77))
	c := &chaos{t: t, r: r, mode: protocol.Modes()[r.IntN(len(protocol.Modes()))], mtu: 1500}
	if c.one(2) {
		c.mtu = protocol.MaxMTU
	}
	queues := 1 + r.IntN(3)
	cfgA, cfgB := c.config(queues), c.config(queues)
	// The number of frames in a lost message is unknown, so every message must have one frame.
	cfgA.NoPack = c.mode.Lossy() || c.one(3)
	cfgB.NoPack = cfgA.NoPack
	cfgA.PeerPools, cfgB.PeerPools = cfgB.Lends(), cfgA.Lends()
	cfgA.Invalidation = c.one(2)
	cfgB.Invalidation = cfgA.Invalidation
	cfgA.KeySend = c.one(2)
	cfgB.KeySend = cfgA.KeySend
	c.size = vnet.MaxFrame
	for _, cfg := range []messaging.Config{cfgA, cfgB} {
		c.size = min(c.size, cfg.Pools[len(cfg.Pools)-1].ElementSize)
	}
	if c.mode.Sends() {
		c.size -= protocol.SendDataOverhead
	}
	if c.mtu == 1500 {
		c.size = min(c.size, protocol.MaxImmLength)
	}
	c.first = map[string]int{"a": len(cfgA.Pools), "b": len(cfgB.Pools)}
	t.Logf("a: %+v\nb: %+v", cfgA, cfgB)
	for _, b := range []*messaging.Budget{cfgA.Budget, cfgB.Budget} {
		if b != nil {
			c.budgets = append(c.budgets, b)
		}
	}
	c.n, c.a, c.b = newPair(t, cfgA, cfgB)
	c.late = c.n.Device("late")
	t.Cleanup(func() { c.late.Close() })
	return c
}

func (c *chaos) one(n int) bool { return c.r.IntN(n) == 0 }

// config returns a random configuration.
func (c *chaos) config(queues int) messaging.Config {
	elements := func() int { return []int{1, 2, 3, 5, 16, 64, 300}[c.r.IntN(7)] }
	cfg := messaging.Config{
		Mode: c.mode, Queues: queues, MTU: c.mtu,
		PoolIdle:    time.Duration(2+c.r.IntN(40)) * time.Millisecond,
		SignalEvery: 1 + c.r.IntN(8), Batch: 1 + c.r.IntN(16),
		KeepAlive: 20 * time.Millisecond, PeerTimeout: 20 * time.Second,
		MaxInline: []int{-1, 100, 300}[c.r.IntN(3)],
	}
	cfg.SendSlots = cfg.SignalEvery + cfg.Batch + 1 + c.r.IntN(20)
	large := messaging.PoolConfig{ElementSize: []int{4096, messaging.MaxElementSize, messaging.MaxElementSize,
		messaging.MaxElementSize}[c.r.IntN(4)], Elements: min(elements(), 64)}
	cfg.Pools = []messaging.PoolConfig{large}
	if !c.mode.Sends() && c.one(2) {
		cfg.Pools = []messaging.PoolConfig{{ElementSize: 2048, Elements: elements()}, large}
	}
	if !c.mode.Sends() {
		cfg.MaxPools = len(cfg.Pools) + c.r.IntN(4)
	}
	if c.one(2) {
		cfg.Budget = messaging.NewBudget(64 << 20)
	}
	if !c.mode.Sends() {
		cfg.Protection, cfg.OneTouch = messaging.Protections()[c.r.IntN(3)], true
	}
	if c.one(4) {
		cfg.Spin = 20 * time.Microsecond
	}
	cfg.PackCopy = []int{-1, 80, 0, messaging.MaxPackCopy}[c.r.IntN(4)]
	return cfg
}

// run sends the frames, and then checks the state of both endpoints.
func (c *chaos) run() {
	ctx, cancel := context.WithCancel(deadline(c.t))
	defer cancel()
	var streams, others sync.WaitGroup
	for q := range c.a.wires {
		for _, d := range [][2]*endpoint{{c.a, c.b}, {c.b, c.a}} {
			frames, seed := 20+c.r.IntN(400), c.r.Uint64()
			if c.one(2) {
				frames *= 8
			}
			streams.Go(func() {
				if err := c.stream(ctx, d[0], d[1], q, frames, seed); err != nil && !c.dying.Load() {
					c.t.Errorf("queue %d, %s to %s: %v", q, d[0].name, d[1].name, err)
				}
			})
		}
	}
	done := make(chan struct{})
	faults := rand.New(rand.NewPCG(c.r.Uint64(), 1))
	others.Go(func() { c.disturb(faults, done) })
	end := c.r.IntN(12)
	after := time.Duration(c.r.IntN(20000)) * time.Microsecond
	if end < 4 {
		others.Go(func() { c.kill(end, after); cancel() })
	}
	streams.Wait()
	close(done)
	others.Wait()
	if end < 4 {
		c.ended()
		return
	}
	if c.t.Failed() {
		return
	}
	// All pools lent on request must be returned, and then all elements be accounted for.
	until(c.t, func() error {
		for _, h := range []*endpoint{c.a, c.b} {
			for i, s := range h.conn.Stats().Channels {
				if len(s.LocalPools) != c.first[h.name] {
					return fmt.Errorf("%s: %d pools are lent on channel %d, not %d", h.name, len(s.LocalPools), i+1, c.first[h.name])
				}
			}
		}
		return errors.Join(c.a.conn.Err(), c.b.conn.Err())
	})
	settled(c.t, c.a, c.b)
	for _, h := range []*endpoint{c.a, c.b} {
		if err := h.conn.Err(); err != nil {
			c.t.Errorf("%s: %v", h.name, err)
		}
		if k := c.n.Counters(h.name); k.RNR+k.Retries+k.Errors+k.AccessErrors+k.CQOverflows != 0 {
			c.t.Errorf("%s: the fabric was troubled: %+v", h.name, k)
		}
	}
}

// length returns the length of a frame of a stream.
func (c *chaos) length(seed, frame uint64) int {
	r := rand.New(rand.NewPCG(seed, frame))
	most := c.size
	if r.IntN(4) > 0 {
		most = min(most, 1500)
	} else if r.IntN(2) == 0 {
		return most
	}
	return 100 + r.IntN(most-99)
}

// stream sends frames and expects them unchanged and in order. On an unreliable channel,
// frames may be lost.
func (c *chaos) stream(ctx context.Context, from, to *endpoint, queue, frames int, seed uint64) error {
	sent := make(chan error, 1)
	go func() {
		for i := range uint64(frames) {
			if err := from.wires[queue].Send(ctx, frame(i, c.length(seed, i), c.mtu)); err != nil {
				sent <- fmt.Errorf("send frame %d: %w", i, err)
				return
			}
		}
		sent <- nil
	}()
	buf := make([]byte, vnet.MaxFrame+1)
	var err error
	total := frames
	for next, got := uint64(0), 0; got < total && err == nil; {
		var f []byte
		if f, err = c.next(ctx, [2]*endpoint{from, to}, queue, &total, seed, got, buf); f == nil {
			break
		}
		seq := binary.BigEndian.Uint64(f[vnet.HdrLen+54:])
		switch {
		case seq < next || (seq > next && !c.mode.Lossy()):
			err = fmt.Errorf("frame %d arrives, %d was expected", seq, next)
		case !bytes.Equal(f, frame(seq, c.length(seed, seq), c.mtu)):
			err = fmt.Errorf("frame %d differs", seq)
		}
		next = seq + 1
		got++
		progress(ctx)
	}
	return errors.Join(err, <-sent)
}

// next waits for a frame. It returns nil if all missing frames are counted as lost.
func (c *chaos) next(
	ctx context.Context, way [2]*endpoint, queue int, frames *int, seed uint64, got int, buf []byte,
) ([]byte, error) {
	from, to := way[0], way[1]
	for {
		short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		f, err := to.wires[queue].Receive(short, buf)
		cancel()
		if err == nil {
			return f, nil
		}
		if ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return nil, err
		}
		tx, rx := from.conn.Stats().Channels[queue], to.conn.Stats().Channels[queue]
		if tx.TxFrames < uint64(*frames) || rx.RxFrames != uint64(got) || !c.mode.Lossy() {
			continue
		}
		if rx.RxFrames+rx.RxLost == tx.TxFrames {
			return nil, nil
		}
		// A lost message is noticed only when a later one arrives: send one more.
		if err := from.wires[queue].Send(ctx, frame(uint64(*frames), c.length(seed, uint64(*frames)), c.mtu)); err != nil {
			return nil, err
		}
		*frames++
	}
}

// disturb delays, stalls and drops messages until done is closed.
func (c *chaos) disturb(r *rand.Rand, done <-chan struct{}) {
	for {
		dev := []string{"a", "b"}[r.IntN(2)]
		var undo func()
		switch r.IntN(6) {
		case 0:
			c.n.Delay(dev, time.Duration(r.IntN(1000))*time.Microsecond)
			undo = func() { c.n.Delay(dev, 0) }
		case 1:
			c.n.Stall(dev)
			undo = func() { c.n.Resume(dev) }
		case 2:
			c.n.DropUC(dev, r.IntN(20))
			undo = func() { c.n.DropUC(dev, 0) }
		case 3:
			c.n.OnSend(dev, hesitate)
			undo = func() { c.n.OnSend(dev, nil) }
		case 4:
			c.press()
			undo = func() {}
		default:
			undo = func() {}
		}
		over := false
		select {
		case <-time.After(time.Duration(r.IntN(5000)) * time.Microsecond):
		case <-done:
			over = true
		}
		undo()
		if over {
			return
		}
	}
}

// hesitate delays some work requests, each only on its own queue pair.
func hesitate(uint32, fabric.SendWR) fabric.Status {
	if rand.IntN(8) == 0 {
		time.Sleep(time.Duration(rand.IntN(300)) * time.Microsecond)
	}
	return fabric.StatusSuccess
}

// press opens another session that needs more memory than is left, so that pools are taken
// back under load.
func (c *chaos) press() {
	for _, budget := range c.budgets {
		conn, err := messaging.New(patient(messaging.Config{Device: c.late, Budget: budget,
			Pools: []messaging.PoolConfig{{ElementSize: 65536, Elements: 1000}}}))
		if err == nil {
			if !c.dying.Load() { // a session that ends frees memory
				c.t.Error("a session began beyond the budget")
			}
			conn.Close()
		}
	}
}

// kill ends the session in one of several ways.
func (c *chaos) kill(way int, after time.Duration) {
	<-time.After(after)
	c.t.Logf("after %v: end %d", after, way)
	c.dying.Store(true)
	switch way {
	case 0:
		if err := c.a.conn.Close(); err != nil {
			c.t.Errorf("close: %v", err)
		}
	case 1:
		c.n.Cut("a")
	case 2:
		c.n.Kill("b")
	default:
		c.b.wires[0].Close()
		// Nothing reads from a's wire any more. If a's port stayed full, b's sender would
		// never look at its own port.
		c.a.wires[0].Close()
	}
}

// ended expects that both endpoints notice the end, and that neither reports a protocol error
// of the other. The first one that notices closes, as a real endpoint would.
func (c *chaos) ended() {
	first, second := c.a, c.b
	select {
	case <-first.conn.Done():
	case <-second.conn.Done():
		first, second = second, first
	case <-deadline(c.t).Done():
		c.t.Fatal("the session goes on")
	}
	reason := first.conn.Err()
	if err := first.conn.Close(); err != nil {
		c.t.Errorf("%s: close: %v", first.name, err)
	}
	for name, err := range map[string]error{first.name: reason, second.name: ended(c.t, second)} {
		c.t.Logf("%s ended: %v", name, err)
		var pe *messaging.ProtocolError
		if errors.As(err, &pe) {
			c.t.Errorf("%s: %v", name, err)
		}
	}
}
