package messaging_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// pileUp sends frames of the given sizes while the devices are stalled, and expects them unchanged and in
// order afterwards.
func pileUp(ctx context.Context, t *testing.T, n *fabrictest.Network, from, to *endpoint, sizes []int) {
	t.Helper()
	n.Stall("a")
	n.Stall("b")
	err := <-sendAll(ctx, from.wires[0], sizes, 1500)
	n.Resume("b")
	n.Resume("a")
	if err == nil {
		err = receiveAll(ctx, to.wires[0], sizes, 1500)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestPack has frames pile up while the devices are stalled. Afterwards they must travel in
// few transfers, or without packs one by one, and arrive unchanged and in order. The device
// must gather frames only if some are too long to be copied.
func TestPack(t *testing.T) {
	const frames, credits = 400, 8
	for _, mode := range protocol.Modes() {
		for _, tt := range []struct {
			no     bool
			copied int
		}{{true, 0}, {false, -1}, {false, 80}, {false, 200}} {
			t.Run(fmt.Sprintf("%s, without %v, copied %d", mode, tt.no, tt.copied), func(t *testing.T) {
				pool := messaging.PoolConfig{ElementSize: 2048, Elements: credits}
				cfg := patient(messaging.Config{Mode: mode, NoPack: tt.no, PackCopy: tt.copied,
					Pools: []messaging.PoolConfig{pool}, MaxPools: 1})
				n, a, b := newPair(t, cfg, cfg)
				ctx := deadline(t)
				sizes := make([]int, frames)
				for i := range sizes {
					sizes[i] = 60 + i%50
				}
				pileUp(ctx, t, n, a, b, sizes)
				pileUp(ctx, t, n, b, a, sizes)
				settled(t, a, b)
				for _, h := range []*endpoint{a, b} {
					s := h.conn.Stats().Channels[0]
					if s.TxFrames != frames || s.RxFrames != frames {
						t.Errorf("%s: %d frames sent, %d received", h.name, s.TxFrames, s.RxFrames)
					}
					if tt.no && (transfers(s) != frames || s.TxPacks+s.RxPacks != 0) {
						t.Errorf("%s: %+v", h.name, s)
					}
					if !tt.no && (transfers(s) > frames/5 || s.RxPacks == 0 || s.RxPacked > frames) {
						t.Errorf("%s: %d transfers for %d frames; %+v", h.name, transfers(s), frames, s)
					}
					// The frames have 60 to 109 bytes.
					if g := n.Counters(h.name).Gathers; (g > 0) != (!tt.no && tt.copied < 109) {
						t.Errorf("%s: %d transfers were gathered, with frames of up to %d bytes copied", h.name, g, tt.copied)
					}
				}
				untroubled(t, n, a, b)
			})
		}
	}
}

// TestPackTakesLargerElement has frames of full size pile up before a sender without a free
// slot. They must travel in elements that hold several of them, although the smallest element
// would suffice for each.
func TestPackTakesLargerElement(t *testing.T) {
	const frames = 200
	cfg := patient(messaging.Config{Pools: []messaging.PoolConfig{{ElementSize: 2048, Elements: 256},
		{ElementSize: 32 << 10, Elements: 32}}, SendSlots: 32})
	n, a, b := newPair(t, cfg, cfg)
	ctx := deadline(t)
	pileUp(ctx, t, n, a, b, slices.Repeat([]int{1500}, frames))
	settled(t, a, b)
	s := a.conn.Stats().Channels[0]
	if n := transfers(s); n > frames/2 {
		t.Errorf("%d transfers for %d frames; %+v", n, frames, s)
	}
	untroubled(t, n, a, b)
}

// TestPackFillsElement sends frames of mixed sizes, so that packs end at the end of their
// element.
func TestPackFillsElement(t *testing.T) {
	const frames = 3000
	for _, mode := range protocol.Modes() {
		for _, copied := range []int{-1, messaging.DefaultPackCopy, messaging.MaxPackCopy} {
			t.Run(fmt.Sprintf("%s, copied %d", mode, copied), func(t *testing.T) {
				cfg := patient(messaging.Config{Mode: mode, Batch: 40, Poll: mode == protocol.ModeImm, PackCopy: copied})
				n, a, b := newPair(t, cfg, cfg)
				sizes := make([]int, frames)
				for i := range sizes {
					sizes[i] = 60 + (i*i*37)%1900
				}
				if err := stream(deadline(t), a.wires[0], b.wires[0], sizes, 1500); err != nil {
					t.Error(err)
				}
				settled(t, a, b)
				untroubled(t, n, a, b)
			})
		}
	}
}
