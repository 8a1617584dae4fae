package pools

import (
	"slices"
	"testing"
	"time"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/core/coretest"
)

// TestTake takes elements of three pools with one each. Each must be of the smallest pool that holds what is
// wanted, or else of the largest one that has a credit and holds what is needed.
func TestTake(t *testing.T) {
	for _, c := range []struct {
		gone      []uint32 // pools without credits
		n, wanted int
		want      uint32 // size of the elements; 0: there is none
	}{
		{nil, 100, 100, 256}, {nil, 100, 256, 256}, {nil, 100, 257, 1024}, {nil, 257, 257, 1024},
		{nil, 100, 5000, 4096}, {nil, 5000, 5000, 0},
		{[]uint32{256}, 100, 100, 1024}, {[]uint32{1024}, 100, 300, 4096},
		{[]uint32{4096}, 100, 2000, 1024}, {[]uint32{4096}, 2000, 2000, 0},
	} {
		m := New(coretest.New(t, protocol.ModeImm), Options{Channels: 1, PeerPools: 3, Idle: time.Minute}, nil, nil)
		ch, err := m.AddChannel(nil, 1, SlotSize)
		if err != nil {
			t.Fatal(err)
		}
		for i, size := range []uint32{1024, 4096, 256} {
			r := bufpool.NewRemote(protocol.Pool{
				Ref: uint32(i), Elements: 1, ElementSize: size, Context: protocol.PoolContext(1, 0),
			}, bufpool.LatestFirst)
			if err := m.Notify(bufpool.Event{Kind: bufpool.Lent, Remote: r}); err != nil {
				t.Fatal(err)
			}
			if slices.Contains(c.gone, size) {
				r.Take()
			}
		}
		g, _, ok := ch.Sender.Credits.Take(c.n, c.wanted)
		var got uint32
		if ok {
			got = uint32(g.ElementSize())
		}
		if got != c.want {
			t.Errorf("without %d: an element of %d bytes for %d, or better %d; want %d", c.gone, got, c.n, c.wanted, c.want)
		}
	}
}
