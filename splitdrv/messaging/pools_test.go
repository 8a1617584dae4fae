package messaging_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/messaging/porttest"
	"github.com/splitnic/splitnic/vnet"
)

// flow streams frames of one size from one wire to another until it is stopped, at least
// leastFlow of them, and checks each.
type flow struct {
	from, to *porttest.Wire
	stop     chan struct{}
	done     sync.WaitGroup
	frames   int
	err      error
}

const leastFlow = 100

func newFlow(t *testing.T, ctx context.Context, from, to *porttest.Wire, size int) *flow {
	f := &flow{from: from, to: to, stop: make(chan struct{})}
	sent := make(chan int, 1)
	var sendErr error
	f.done.Go(func() {
		n := 0
		defer func() { sent <- n }()
		for ; ; n++ {
			select {
			case <-f.stop:
				if n >= leastFlow {
					return
				}
			default:
			}
			if sendErr = from.Send(ctx, frame(uint64(n), size, 1500)); sendErr != nil {
				return
			}
		}
	})
	f.done.Go(func() {
		buf := make([]byte, vnet.MaxFrame+1)
		total := -1
		for total < 0 || f.frames < total {
			if total < 0 {
				select {
				case total = <-sent:
					continue
				default:
				}
			}
			// The last frame may have been received before the total is known.
			short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			got, err := to.Receive(short, buf)
			cancel()
			if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
				continue
			}
			if err != nil {
				f.err = err
				return
			}
			if !bytes.Equal(got, frame(uint64(f.frames), size, 1500)) {
				f.err = fmt.Errorf("another frame arrived than number %d", f.frames)
				return
			}
			f.frames++
		}
	})
	t.Cleanup(func() { f.finish(t) })
	return f
}

// finish stops the flow and waits until all frames have arrived.
func (f *flow) finish(t *testing.T) {
	t.Helper()
	select {
	case <-f.stop:
		return
	default:
	}
	close(f.stop)
	f.done.Wait()
	if f.err != nil {
		t.Error(f.err)
	}
}

// scarce returns a configuration with few elements, so that a sender soon asks for pools.
func scarce(mode protocol.Mode, idle time.Duration) messaging.Config {
	return patient(messaging.Config{
		Mode: mode, Pools: []messaging.PoolConfig{{ElementSize: 2048, Elements: 4}}, MaxPools: 3, PoolIdle: idle,
	})
}

func untroubled(t *testing.T, n *fabrictest.Network, endpoints ...*endpoint) {
	t.Helper()
	for _, h := range endpoints {
		if err := h.conn.Err(); err != nil {
			t.Errorf("%s: %v", h.name, err)
		}
		if c := n.Counters(h.name); c.RNR != 0 || c.Retries != 0 || c.Errors != 0 || c.AccessErrors != 0 ||
			c.CQOverflows != 0 {
			t.Errorf("%s: the fabric was troubled: %+v", h.name, c)
		}
	}
}

// TestPoolsGrowAndComeBack loads a session until the initiator asks for pools and gets them.
// Then it leaves the session idle until the initiator gives the pools back, or the target takes
// them back: the side with the shorter PoolIdle.
func TestPoolsGrowAndComeBack(t *testing.T) {
	for _, g := range guards {
		mode := g.mode
		for _, c := range []struct {
			name   string
			ia, ib time.Duration // PoolIdle of the initiator a and the target b
			given  bool
		}{
			{"given back by the initiator", 200 * time.Millisecond, time.Hour, true},
			{"taken back by the target", time.Hour, 100 * time.Millisecond, false},
			{"both at once", 200 * time.Millisecond, 100 * time.Millisecond, false},
		} {
			t.Run(fmt.Sprintf("%v, %s", g, c.name), func(t *testing.T) {
				n, a, b := newPair(t, g.of(scarce(mode, c.ia)), g.of(scarce(mode, c.ib)))
				ctx := deadline(t)
				before := b.conn.Stats().MemoryPinned
				var sa, sb messaging.Stats
				for round := range 2 {
					f := newFlow(t, ctx, a.wires[0], b.wires[0], 1000)
					until(t, func() error {
						if s := a.conn.Stats().Channels[0]; len(s.RemotePools) < 2 {
							return fmt.Errorf("round %d: the initiator has %d pools", round, len(s.RemotePools))
						}
						return nil
					})
					if now := b.conn.Stats().MemoryPinned; now <= before {
						t.Errorf("round %d: %d bytes pinned, %d before", round, now, before)
					}
					f.finish(t)
					until(t, func() error {
						sa, sb = a.conn.Stats(), b.conn.Stats()
						s, l := sa.Channels[0], sb.Channels[0]
						if len(s.RemotePools) != 1 || len(l.LocalPools) != 1 || sb.MemoryPinned != before {
							return fmt.Errorf("round %d: %d pools granted, %d lent, %d bytes pinned, %d before", round, len(s.RemotePools),
								len(l.LocalPools), sb.MemoryPinned, before)
						}
						if sb.PoolsReturned != sb.PoolsGranted { // a pool may have been asked for at the last moment
							return fmt.Errorf("round %d: %d pools granted, %d came back", round, sb.PoolsGranted, sb.PoolsReturned)
						}
						return nil
					})
				}
				if sa.PoolsAsked < 2 || sb.PoolsGranted < 2 {
					t.Errorf("asked for %d pools, granted %d", sa.PoolsAsked, sb.PoolsGranted)
				}
				if c.name != "both at once" && (sa.PoolsGiven > 0) != c.given {
					t.Errorf("%d pools were given back", sa.PoolsGiven)
				}
				settled(t, a, b)
				untroubled(t, n, a, b)
				g.check(t, sb)
			})
		}
	}
}

// TestTakenBackUnderLoad takes pools back because of a lack of memory, while frames are sent
// through them. No frame may be lost, and all must arrive in order.
func TestTakenBackUnderLoad(t *testing.T) {
	for _, g := range guards {
		t.Run(g.String(), func(t *testing.T) {
			cfg := g.of(scarce(g.mode, time.Hour))
			budget := messaging.NewBudget(1 << 30)
			target := cfg
			target.Budget = budget
			n, a, b := newPair(t, cfg, target)
			ctx := deadline(t)
			f := newFlow(t, ctx, a.wires[0], b.wires[0], 1000)
			late := n.Device("c")
			t.Cleanup(func() { late.Close() })
			for round := range 3 {
				until(t, func() error {
					if s := a.conn.Stats().Channels[0]; len(s.RemotePools) < 2 {
						return fmt.Errorf("round %d: the initiator has %d pools", round, len(s.RemotePools))
					}
					return nil
				})
				returned := b.conn.Stats().PoolsReturned
				other := patient(messaging.Config{Device: late, Budget: budget, Queues: 16,
					Pools: []messaging.PoolConfig{{ElementSize: 65536, Elements: messaging.MaxElements}}})
				if conn, err := messaging.New(other); err == nil {
					conn.Close()
					t.Fatal("a session began beyond the budget")
				} else if !errors.Is(err, messaging.ErrMemory) {
					t.Fatal(err)
				}
				until(t, func() error {
					if b.conn.Stats().PoolsReturned == returned {
						return fmt.Errorf("round %d: no pool was taken back", round)
					}
					return nil
				})
			}
			f.finish(t)
			settled(t, a, b)
			untroubled(t, n, a, b)
		})
	}
}

// TestPoolForTheOneThatLacksIt has two data channels that both lack credit at first. Only the
// second one is used afterwards, and only this one may get more pools.
func TestPoolForTheOneThatLacksIt(t *testing.T) {
	cfg := scarce(protocol.ModeImm, time.Hour)
	cfg.Queues = 2
	n := fabrictest.New()
	a, b := newEndpoint(t, n, "a", cfg), newEndpoint(t, n, "b", cfg)
	connect(t, a, b)
	start := func(h *endpoint) {
		if err := h.conn.Start(h.ports); err != nil {
			t.Fatal(err)
		}
	}
	start(a)
	until(t, func() error {
		for i, ch := range a.conn.Stats().Channels {
			if ch.TxNoCredit == 0 {
				return fmt.Errorf("data channel %d does not wait for pools", i+1)
			}
		}
		return nil
	})
	start(b)
	f := newFlow(t, deadline(t), a.wires[1], b.wires[1], 1000)
	until(t, func() error {
		if s := a.conn.Stats(); len(s.Channels[1].RemotePools) < 3 {
			return fmt.Errorf("%d pools are granted", len(s.Channels[1].RemotePools))
		}
		return nil
	})
	f.finish(t)
	if s := a.conn.Stats(); len(s.Channels[0].RemotePools) != 1 || s.PoolsAsked != 2 {
		t.Errorf("asked for %d pools; the channel that is not used has %d", s.PoolsAsked, len(s.Channels[0].RemotePools))
	}
}

// TestPoolForLargerFrames sends frames that fit no pool. The endpoint must ask for a pool, and
// go on whether it is granted or not.
func TestPoolForLargerFrames(t *testing.T) {
	cfg := patient(messaging.Config{Pools: []messaging.PoolConfig{{ElementSize: 2048, Elements: 64}}})
	stingy := cfg
	stingy.MaxPools, stingy.PeerPools = 1, 3
	for _, c := range []struct {
		name   string
		target messaging.Config
		passes bool
	}{{"granted", cfg, true}, {"not granted", stingy, false}} {
		t.Run(c.name, func(t *testing.T) {
			initiator := cfg
			initiator.PeerPools = 3
			_, a, b := newPair(t, initiator, c.target)
			ctx := deadline(t)
			buf := make([]byte, vnet.MaxFrame+1)
			var large bool
			for i := 0; !large && (c.passes || i < 200); i++ {
				for _, n := range []int{30000, 100} {
					if err := a.wires[0].Send(ctx, frame(1, n, 1500)); err != nil {
						t.Fatal(err)
					}
				}
				got, err := b.wires[0].Receive(ctx, buf)
				if err != nil {
					t.Fatal(err)
				}
				if len(got) == 30000 {
					large = true
					if got, err = b.wires[0].Receive(ctx, buf); err != nil {
						t.Fatal(err)
					}
				}
				if len(got) != 100 {
					t.Fatalf("%d bytes arrived", len(got))
				}
			}
			sa, sb := a.conn.Stats(), b.conn.Stats()
			// If the pool is lent quickly, not even the first frame is dropped.
			dropped := sa.Channels[0].TxTooLong > 0
			if large != c.passes || sa.PoolsAsked == 0 || (!dropped && !c.passes) || (sb.PoolsGranted > 0) != c.passes {
				t.Errorf("large frames passed: %t; asked for %d pools, granted %d, dropped %d frames", large, sa.PoolsAsked,
					sb.PoolsGranted, sa.Channels[0].TxTooLong)
			}
		})
	}
}

// TestMemoryBounds has a peer ask for pools beyond the session's MaxMemory, which must be
// refused.
func TestMemoryBounds(t *testing.T) {
	cfg := scarce(protocol.ModeImm, time.Hour)
	limited := cfg
	t.Run("without", func(t *testing.T) {
		_, a, _ := newPair(t, cfg, cfg)
		limited.MaxMemory = int64(a.conn.Stats().MemoryPinned) + 4096
	})
	_, a, b := newPair(t, cfg, limited)
	f := newFlow(t, deadline(t), a.wires[0], b.wires[0], 1000)
	until(t, func() error {
		if s := b.conn.Stats(); s.PoolsRefused == 0 {
			return errors.New("no pool was refused")
		}
		return nil
	})
	f.finish(t)
	if s := b.conn.Stats(); int64(s.MemoryPinned) > limited.MaxMemory || s.PoolsGranted != 0 {
		t.Errorf("%d bytes pinned, %d allowed; %d pools granted", s.MemoryPinned, limited.MaxMemory, s.PoolsGranted)
	}
}

// TestFirstPoolsStay has the initiator ask for a pool before the peer's first pools have been
// lent, whose many keys take long to send. The initiator must not take the first pools for the
// one that it has asked for, and so must not give them back when they are idle.
func TestFirstPoolsStay(t *testing.T) {
	cfg := patient(messaging.Config{
		Queues: 2, Protection: messaging.ProtectOneTouch, OneTouch: true, MaxPools: 2, PoolIdle: 20 * time.Millisecond,
		Pools: []messaging.PoolConfig{{ElementSize: 128, Elements: 4 * protocol.MaxPoolKeys}},
	})
	peer := patient(messaging.Config{Queues: 2, OneTouch: true, MaxPools: 2, PoolIdle: 20 * time.Millisecond})
	peer.Pools = []messaging.PoolConfig{{ElementSize: 2048, Elements: 4}}
	n := fabrictest.New()
	fabrictest.NoLeaks(t, n)
	a, b := newEndpoint(t, n, "a", cfg), newEndpoint(t, n, "b", peer)
	connect(t, a, b)
	ctx := deadline(t)
	n.Delay("a", time.Millisecond)                                     // delays each message with keys
	if err := b.wires[0].Send(ctx, frame(0, 1000, 1500)); err != nil { // fits no pool
		t.Fatal(err)
	}
	for _, h := range []*endpoint{a, b} {
		if err := h.conn.Start(h.ports); err != nil {
			t.Fatal(err)
		}
	}
	until(t, func() error {
		s := b.conn.Stats()
		if s.PoolsAsked == 0 || s.PoolsGiven == 0 || len(s.Channels[0].RemotePools) != 1 {
			return fmt.Errorf("%d pools were asked for, %d are given back, %d granted", s.PoolsAsked, s.PoolsGiven,
				len(s.Channels[0].RemotePools))
		}
		return nil
	})
	if err := stream(ctx, b.wires[1], a.wires[1], []int{100}, 1500); err != nil {
		t.Errorf("%v; on that channel these pools are granted: %+v", err, b.conn.Stats().Channels[1].RemotePools)
	}
	for i, ch := range b.conn.Stats().Channels {
		if len(ch.RemotePools) != 1 || ch.RemotePools[0].Extra {
			t.Errorf("on channel %d these pools are granted: %+v", i+1, ch.RemotePools)
		}
	}
}
