package messaging_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/messaging/cq"
	"github.com/splitnic/splitnic/vnet"
)

// TestLatencyChannel sends frames over the latency channel in each mode, up to the longest
// allowed length. A longer frame on this channel must be dropped and counted, and the frames
// behind it must arrive.
func TestLatencyChannel(t *testing.T) {
	for _, mode := range protocol.Modes() {
		for _, mtu := range []int{1500, 9000} {
			t.Run(fmt.Sprintf("%s mtu %d", mode, mtu), func(t *testing.T) {
				cfg := patient(messaging.Config{Mode: mode, Queues: 2, MTU: mtu, LatencyQueue: true})
				_, a, b := newPair(t, cfg, cfg)
				longest := vnet.HdrLen + messaging.LatencyLimit(mtu)
				sizes := randomSizes(1, 200)
				for i := range sizes {
					sizes[i] = min(sizes[i], longest)
				}
				sizes = append(sizes, longest, vnet.MinFrame)
				ctx := deadline(t)
				for _, pair := range [][2]*endpoint{{a, b}, {b, a}} {
					for _, n := range []int{longest + vnet.TagLen + 2048, 60000} {
						if err := pair[0].wires[1].Send(ctx, frame(1, n, mtu)); err != nil {
							t.Fatal(err)
						}
					}
					if err := stream(ctx, pair[0].wires[1], pair[1].wires[1], sizes, mtu); err != nil {
						t.Error(err)
					}
					if err := stream(ctx, pair[0].wires[0], pair[1].wires[0], []int{60, 1500, 60000}, mtu); err != nil {
						t.Error(err)
					}
				}
				for _, h := range []*endpoint{a, b} {
					s := h.conn.Stats()
					bulk, latency := s.Channels[0], s.Channels[1]
					if bulk.Latency || !latency.Latency {
						t.Errorf("%s: the status names the latency channel wrongly", h.name)
					}
					// Frames may be counted after they have arrived, a batch at a time.
					until(t, func() error {
						c, n := h.conn.Stats().Channels[1], uint64(len(sizes))
						if c.TxFrames != n || c.RxFrames != n || c.TxTooLong != 2 {
							return fmt.Errorf("%s: %d sent, %d received, %d too long", h.name, c.TxFrames, c.RxFrames, c.TxTooLong)
						}
						return nil
					})
					if latency.MemoryPinned > 1<<20 || 4*latency.MemoryPinned > bulk.MemoryPinned {
						t.Errorf("%s: %d bytes for the latency channel, %d for the other", h.name, latency.MemoryPinned,
							bulk.MemoryPinned)
					}
				}
				settled(t, a, b)
			})
		}
	}
}

// TestLatencyOfOneSide has a latency channel at only one side. The other side lends the usual
// pools, and both sides must work with the pools that they get.
func TestLatencyOfOneSide(t *testing.T) {
	cfg := patient(messaging.Config{Queues: 2})
	with := cfg
	with.LatencyQueue = true
	_, a, b := newPair(t, cfg, with)
	ctx := deadline(t)
	for i := range a.wires {
		if err := stream(ctx, a.wires[i], b.wires[i], []int{60, 1500, 60}, 1500); err != nil {
			t.Error(err)
		}
		if err := stream(ctx, b.wires[i], a.wires[i], []int{60, 1500, 60}, 1500); err != nil {
			t.Error(err)
		}
	}
	settled(t, a, b)
}

// TestLatencyLimitFits checks, for all MTUs, that the longest frame of the latency channel
// fits into an element, with a VLAN tag and the header.
func TestLatencyLimitFits(t *testing.T) {
	for _, mode := range protocol.Modes() {
		for mtu := protocol.MinMTU; mtu <= protocol.MaxMTU; mtu++ {
			pools := messaging.LatencyPools(mode, mtu)
			need := vnet.HdrLen + vnet.TagLen + messaging.LatencyLimit(mtu)
			if mode.Sends() {
				need += protocol.SendDataOverhead
			}
			if got := pools[len(pools)-1].ElementSize; got < need || got > 10240 {
				t.Fatalf("mode %s, MTU %d: elements of %d bytes, %d are needed", mode, mtu, got, need)
			}
		}
	}
}

func TestLatencyConfigErrors(t *testing.T) {
	dev := fabrictest.New().Device("a")
	defer dev.Close()
	for _, c := range []messaging.Config{
		{Queues: 1, LatencyQueue: true},
		{Queues: 2, LatencyQueue: true, LatencyPools: []messaging.PoolConfig{}},
		{Queues: 2, LatencyQueue: true, LatencyPools: []messaging.PoolConfig{{ElementSize: 2048, Elements: 257}}},
		{Queues: 2, LatencyQueue: true, LatencyPools: []messaging.PoolConfig{{ElementSize: 63, Elements: 8}}},
		{Queues: 2, LatencyQueue: true, Mode: protocol.ModeSend,
			LatencyPools: messaging.LatencyPools(protocol.ModeImm, 9000)},
	} {
		c.Device = dev
		if conn, err := messaging.New(c); err == nil {
			conn.Close()
			t.Errorf("accepted: %+v", c)
		}
	}
	c := messaging.Config{Device: dev, Queues: 2, MTU: 9000, LatencyQueue: true,
		Pools: []messaging.PoolConfig{{ElementSize: 65535, Elements: 8}}, MaxPools: 1}
	if err := c.Check(); err != nil {
		t.Errorf("one pool each: %v", err)
	}
}

// TestLatencyHandler expects that the latency channel has a handler of its own if there are at
// least two, unless the configuration assigns the channels.
func TestLatencyHandler(t *testing.T) {
	dev := fabrictest.New().Device("a")
	defer dev.Close()
	vectors := dev.Limits().CompVectors
	for queues := 2; queues <= cq.MaxQueues; queues++ {
		c := messaging.Config{Device: dev, Queues: queues, LatencyQueue: true}
		g := c.Handling()
		if want := 2 + min(vectors, queues-1); len(g.Handlers) != want {
			t.Errorf("%d queues, %d vectors: %d handlers with the control channel's, not %d", queues, vectors, len(g.Handlers),
				want)
		}
		latency := g.Assigned[queues-1]
		for i, h := range g.Assigned[:queues-1] {
			if h == latency || h < 1 || h >= len(g.Handlers) {
				t.Errorf("%d queues: channel %d has handler %d, the latency channel %d", queues, i+1, h, latency)
			}
		}
		c.Handlers = []cq.Handler{{Number: 1}}
		if g := c.Handling(); len(g.Handlers) != 2 || g.Assigned[queues-1] != 1 {
			t.Errorf("one handler is wanted: %+v", g)
		}
		c.Handlers = []cq.Handler{{Number: 3}}
		if g := c.Handling(); g.Assigned[queues-1] != 3 || slices.Contains(g.Assigned[:queues-1], 3) {
			t.Errorf("three handlers are wanted: %+v", g)
		}
		c.Handlers = nil
		c.Assigned = []int{2}
		if g := c.Handling(); g.Assigned[0] != 2 {
			t.Errorf("channel 1 is with handler %d, not 2", g.Assigned[0])
		}
	}
}
