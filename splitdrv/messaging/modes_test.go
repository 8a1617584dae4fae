package messaging_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/vnet"
)

// opcodes returns counters of the work requests that an endpoint has posted on its control
// channel and on its data channels.
func opcodes(n *fabrictest.Network, h *endpoint) (control, data fabrictest.Counters) {
	first := h.conn.Addresses()[0].QPN
	for _, qp := range n.QueuePairs(h.name) {
		sum := &data
		if qp.Num == first {
			sum = &control
		}
		sum.Sends += qp.Counters.Sends
		sum.Writes += qp.Counters.Writes
		sum.WriteImms += qp.Counters.WriteImms
	}
	return control, data
}

// transfers returns the number of transfers that a channel has sent.
func transfers(s messaging.ChannelStats) uint64 { return s.TxFrames - s.TxPacked + s.TxPacks }

// TestModes sends the same frames in each mode. Each mode must use only its own kind of work
// requests, on the right channels.
func TestModes(t *testing.T) {
	for _, mode := range protocol.Modes() {
		for _, queues := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s, %d queues", mode, queues), func(t *testing.T) {
				cfg := patient(messaging.Config{Mode: mode, Queues: queues})
				n, a, b := newPair(t, cfg, cfg)
				ctx := deadline(t)
				const frames = 600
				streamBothWays(ctx, t, a, b, frames).Wait()
				settled(t, a, b)
				untroubled(t, n, a, b)
				for _, h := range []*endpoint{a, b} {
					control, data := opcodes(n, h)
					if control.Writes+control.WriteImms != 0 {
						t.Errorf("%s: writes on the control channel: %+v", h.name, control)
					}
					var total uint64
					for _, s := range h.conn.Stats().Channels {
						total += transfers(s)
					}
					var want [3]uint64 // sends, writes, writes with immediate data
					switch {
					case mode.Sends():
						want[0] = total
					case mode.Indicated():
						want[1] = total
					default:
						want[2] = total
					}
					if got := [3]uint64{data.Sends, data.Writes, data.WriteImms}; got != want {
						t.Errorf("%s: data channels: %v sends, writes, writes with immediate data; want %v", h.name, got, want)
					}
					for i, s := range h.conn.Stats().Channels {
						indicated := uint64(0)
						if mode.Indicated() {
							indicated = transfers(s)
						}
						if s.TxFrames != frames || s.RxFrames != frames || s.TxIndicated != indicated ||
							(s.RxIndicated > 0) != (indicated > 0) || s.RxLost != 0 {
							t.Errorf("%s: queue %d: %+v", h.name, i, s)
						}
						if s.UpdatesSent >= frames/2 || s.IndicatesSent > frames {
							t.Errorf("%s: queue %d: %d updates, %d indications for %d frames", h.name, i, s.UpdatesSent, s.IndicatesSent,
								frames)
						}
					}
				}
			})
		}
	}
}

// TestScarcePoolsInModes is TestScarcePools in all modes.
func TestScarcePoolsInModes(t *testing.T) {
	for _, mode := range protocol.Modes() {
		for _, elements := range []int{1, 2, 7} {
			t.Run(fmt.Sprintf("%s, %d elements", mode, elements), func(t *testing.T) {
				cfg := patient(messaging.Config{
					Mode:     mode,
					Pools:    []messaging.PoolConfig{{ElementSize: messaging.MaxElementSize, Elements: elements}},
					MaxPools: 1, SendSlots: 4, Batch: 1, SignalEvery: 2,
				})
				squeeze(t, cfg, 700)
			})
		}
	}
}

// TestWhatImmediateDataCannotSay sends frames whose length, element or pool does not fit into
// immediate data, mixed with others. Each of the former must be indicated by a message, and all
// frames must arrive in order.
func TestWhatImmediateDataCannotSay(t *testing.T) {
	const mtu = protocol.MaxMTU
	var many []messaging.PoolConfig
	for range 40 {
		many = append(many, messaging.PoolConfig{ElementSize: vnet.MaxFrame + 5, Elements: 1})
	}
	long := func(r *rand.Rand) int { return protocol.MaxImmLength - 10 + r.IntN(30) }
	for _, c := range []struct {
		name string
		cfg  messaging.Config
		size func(r *rand.Rand) int
		all  bool // at least some frames travel with immediate data
	}{
		{"length", messaging.Config{MTU: mtu}, long, true},
		{"element", messaging.Config{MTU: mtu, NoPack: true,
			Pools: []messaging.PoolConfig{{ElementSize: 2048, Elements: 700}}, MaxPools: 1, SendSlots: 512, Batch: 256},
			func(*rand.Rand) int { return 1000 }, true},
		{"pool", messaging.Config{MTU: mtu, Queues: 8, Pools: many, MaxPools: len(many), SendSlots: 4, Batch: 1,
			SignalEvery: 2},
			func(*rand.Rand) int { return 1000 }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, a, b := newPair(t, patient(c.cfg), patient(c.cfg))
			ctx := deadline(t)
			r := rand.New(rand.NewPCG(1, 2))
			sizes := make([]int, 1000)
			for i := range sizes {
				sizes[i] = c.size(r)
			}
			if c.name == "element" {
				n.Delay("a", time.Second) // no element is returned before the high ones are used
			}
			var wg sync.WaitGroup
			for i := range a.wires {
				wg.Go(func() {
					sent := sendAll(ctx, a.wires[i], sizes, mtu)
					if c.name == "element" {
						until(t, func() error {
							if a.conn.Stats().Channels[i].TxIndicated == 0 {
								return errors.New("no transfer was indicated by a message")
							}
							return nil
						})
						n.Delay("a", 0)
					}
					if err := errors.Join(receiveAll(ctx, b.wires[i], sizes, mtu), <-sent); err != nil {
						t.Errorf("queue %d: %v", i, err)
					}
				})
			}
			wg.Wait()
			settled(t, a, b)
			_, data := opcodes(n, a)
			var indicated uint64
			until(t, func() error { // the sender counts messages after it has sent them
				var total uint64
				indicated = 0
				for _, s := range a.conn.Stats().Channels {
					indicated += s.TxIndicated
					total += transfers(s)
				}
				if data.Writes != indicated || data.Writes+data.WriteImms != total {
					return fmt.Errorf("%d transfers indicated by messages, %d of %d written without immediate data", indicated,
						data.Writes, data.Writes+data.WriteImms)
				}
				return nil
			})
			if indicated == 0 || data.WriteImms == 0 {
				t.Errorf("%d transfers were indicated by messages, %d by immediate data", indicated, data.WriteImms)
			}
			if c := n.Counters("a"); c.RNR != 0 {
				t.Errorf("receiver not ready %d times", c.RNR)
			}
		})
	}
}

// TestManyPools lends more pools than immediate data can name, in the mode that does not use
// immediate data.
func TestManyPools(t *testing.T) {
	var pools []messaging.PoolConfig
	for range 60 {
		pools = append(pools, messaging.PoolConfig{ElementSize: 2048, Elements: 2})
	}
	cfg := patient(messaging.Config{Mode: protocol.ModeIndicate, Queues: 5, Pools: pools, MaxPools: len(pools)})
	_, a, b := newPair(t, cfg, cfg)
	ctx := deadline(t)
	sizes := make([]int, 2000)
	for i := range sizes {
		sizes[i] = 1000
	}
	var wg sync.WaitGroup
	for i := range a.wires {
		wg.Go(func() {
			if err := stream(ctx, a.wires[i], b.wires[i], sizes, 1500); err != nil {
				t.Errorf("queue %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	settled(t, a, b)
	highest := uint32(0)
	for _, s := range a.conn.Stats().Channels {
		for _, p := range s.RemotePools {
			highest = max(highest, p.Ref)
		}
	}
	if highest < protocol.MaxImmPools {
		t.Errorf("the highest pool reference is %d", highest)
	}
}

// TestLostMessages drops messages on an unreliable channel, also as many as there are credits.
// The other messages must arrive in order. The lost ones must be counted and their credits
// returned, and the control channel must have no errors.
func TestLostMessages(t *testing.T) {
	cfg := patient(messaging.Config{Mode: protocol.ModeSendUC, NoPack: true,
		Pools: []messaging.PoolConfig{{ElementSize: 4096, Elements: 16}}})
	n, a, b := newPair(t, cfg, cfg)
	ctx := deadline(t)
	buf := make([]byte, vnet.MaxFrame+1)
	next := uint64(0)
	send := func(k int) {
		t.Helper()
		for range k {
			if err := a.wires[0].Send(ctx, frame(next, 500, 1500)); err != nil {
				t.Fatal(err)
			}
			next++
		}
	}
	expect := func(seq uint64) {
		t.Helper()
		got, err := b.wires[0].Receive(ctx, buf)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(frame(seq, 500, 1500)) {
			t.Fatalf("another frame arrived than number %d", seq)
		}
	}
	send(1)
	expect(0)
	n.DropUC("a", 3)
	send(5)
	expect(4)
	expect(5)
	until(t, func() error {
		if lost := b.conn.Stats().Channels[0].RxLost; lost != 3 {
			return fmt.Errorf("%d messages are counted as lost", lost)
		}
		return nil
	})
	// As many as there are credits: the sender has no credit for a later message, by which the
	// receiver would notice the loss.
	const credits = 16
	n.DropUC("a", credits)
	send(credits + 3)
	lost := uint64(6 + credits)
	for seq := lost; seq < next; seq++ {
		expect(seq)
	}
	settled(t, a, b)
	if s := b.conn.Stats().Channels[0]; s.RxLost != 3+credits || s.RxLate != 0 {
		t.Errorf("%d messages lost, %d late", s.RxLost, s.RxLate)
	}
}

// TestIndicationsAreAcknowledgedEarly sends frames one by one in mode indicate, too few to
// make an update due. Their elements must still be returned after every eighth message.
// Otherwise the sender would have to stop after the sixteenth.
func TestIndicationsAreAcknowledgedEarly(t *testing.T) {
	const frames = 8 * protocol.IndicatesPerChannel
	cfg := patient(messaging.Config{Mode: protocol.ModeIndicate,
		Pools: []messaging.PoolConfig{{ElementSize: 2048, Elements: 4096}}})
	_, a, b := newPair(t, cfg, cfg)
	buf := make([]byte, 2048)
	for i := range uint64(frames) {
		if err := a.wires[0].Send(deadline(t), frame(i, 100, 1500)); err != nil {
			t.Fatal(err)
		}
		if _, err := b.wires[0].Receive(deadline(t), buf); err != nil {
			t.Fatalf("frame %d: %v", i, err)
		}
	}
	until(t, func() error {
		if n := b.conn.Stats().Channels[0].UpdatesSent; n != frames/8 {
			return fmt.Errorf("%d updates for %d messages", n, frames)
		}
		return nil
	})
}
