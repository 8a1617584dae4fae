package messaging_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/seal"
	"github.com/splitnic/splitnic/vnet"
)

// TestFamilyFrames sends frames of all sizes over adapters of each family, in each mode and with each
// protection that they can have. TestMillionFrames does the same for longer.
func TestFamilyFrames(t *testing.T) { familyFrames(t, 10_000, false) }

// TestFamilyFramesSealed is TestFamilyFrames with encryption.
func TestFamilyFramesSealed(t *testing.T) { familyFrames(t, 3000, true) }

// familyFrames sends frames over adapters of all families, as many in all, and compares what arrives
// with what was sent. The frames are inline, in packs, super-frames, and in mode imm also such that
// immediate data cannot indicate them.
func familyFrames(t *testing.T, frames int, sealed bool) {
	type row struct {
		adapter
		mode       protocol.Mode
		protection messaging.Protection
	}
	var rows []row
	for _, a := range families() {
		for _, mode := range protocol.Modes() {
			for _, p := range messaging.Protections() {
				if a.carries(mode) && a.protects(mode, p) == p {
					rows = append(rows, row{a, mode, p})
				}
			}
		}
	}
	each := frames/(2*len(rows)) + 1 // in each direction
	ran, packs, inline := 0, uint64(0), uint64(0)
	for i, r := range rows {
		t.Run(fmt.Sprintf("%s, %s, %s", r.name, r.mode, r.protection), func(t *testing.T) {
			n := fabrictest.New(r.options...)
			fabrictest.NoLeaks(t, n)
			cfg := patient(messaging.Config{
				Mode: r.mode, Protection: r.protection, Invalidation: true, OneTouch: true,
				Pools: messaging.DefaultPools(r.mode, protocol.MaxMTU),
			})
			if sealed {
				cfg, _ = sealedWith(t, seal.AES128GCM, cfg)
			}
			sides := onDevices(t, n, cfg)
			ctx := whileUp(t, sides)
			var wg sync.WaitGroup
			for j, from := range sides {
				wg.Go(func() {
					send := func(sizes ...int) error {
						return stream(ctx, from.wires[0], sides[1-j].wires[0], sizes, 1500)
					}
					// The first frame is alone, and so in no pack.
					if err := errors.Join(send(vnet.MinFrame), send(frameSizes(uint64(2*i+j), each)...)); err != nil {
						t.Errorf("from %s: %v", from.name, err)
					}
				})
			}
			wg.Wait()
			if t.Failed() {
				return
			}
			settled(t, sides[0], sides[1])
			for _, h := range sides {
				s := h.conn.Stats().Channels[0]
				least := vnet.MinFrame
				if sealed {
					least += seal.Overhead
				}
				if r.mode.Sends() {
					least += protocol.SendDataOverhead
				}
				if (s.TxInline > 0) != (r.inline >= least) || s.TxPacks > 0 && r.MaxSGE < 2 && !sealed ||
					(s.TxIndicated > 0) == r.mode.Sends() || s.TxFrames != uint64(1+each) {
					t.Errorf("%s: %d of %d frames, %d transfers inline, %d packs, %d indicated by messages", h.name, s.TxFrames,
						1+each, s.TxInline, s.TxPacks, s.TxIndicated)
				}
				packs, inline = packs+s.TxPacks, inline+s.TxInline
			}
			ran++
		})
	}
	if ran == len(rows) && (packs == 0 || inline == 0) {
		t.Errorf("%d packs, %d transfers inline", packs, inline)
	}
}

// frameSizes returns sizes of n frames: many that can be inline or in packs, and up to the largest.
func frameSizes(seed uint64, n int) []int {
	r := rand.New(rand.NewPCG(seed, 2))
	sizes := make([]int, n)
	for i := range sizes {
		least, most := vnet.MinFrame, messaging.DefaultInline+20
		switch k := r.IntN(100); {
		case k < 2 || i == n/2:
			least, most = protocol.MaxImmLength+1, vnet.MaxFrame
		case i == n/2+1:
			least, most = protocol.MaxImmLength, protocol.MaxImmLength
		case k < 5:
			most = protocol.MaxImmLength
		case k < 25:
			most = 9000
		case k < 60:
			most = 1528
		}
		sizes[i] = least + r.IntN(most-least+1)
	}
	return sizes
}
