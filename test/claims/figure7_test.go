package claims

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

func TestFigure7Example(t *testing.T)     { inMemory(t, figure7Example) }
func TestRDMAFigure7Example(t *testing.T) { onSoftRoCE(t, figure7Example) }

// This is the figure's example: 256 bytes from the LAN go into element 5 of the host's pool 7, and
// the host gets the immediate data (7, 5, 256).
func figure7Example(t *testing.T, on fabricOf) {
	// Pools are numbered from 0: the last of eight is pool 7.
	p := newPair(t, on, messaging.Config{Queues: 2, MaxPools: 4, Pools: []messaging.PoolConfig{
		{ElementSize: 2048, Elements: 64}, {ElementSize: 1024, Elements: 64}, {ElementSize: 512, Elements: 64},
		{ElementSize: 256, Elements: 64},
	}})
	var pool7 lentPool
	for _, l := range p.lent(hostSide) {
		if l.Ref == 7 {
			pool7 = l
		}
	}
	if pool7.ElementSize != 256 {
		t.Fatalf("the host has lent no pool 7: %+v", p.lent(hostSide))
	}
	queue := int(pool7.Channel()) - 1
	const imm = 7<<24 | 5<<16 | 256
	// Send frames until one uses that element.
	for sent := 0; ; sent++ {
		if sent > 64 {
			t.Fatal("element 5 of pool 7 was never used")
		}
		frame := p.cross(unitSide, queue, 256)[0]
		ws := p.writes(unitSide)
		w := ws[len(ws)-1]
		if w.pool.Ref != 7 || w.element != 5 {
			continue
		}
		if w.send.RemoteAddr != pool7.Addr+5*256 || w.send.Imm != imm || !bytes.Equal(w.data, frame) {
			t.Errorf("the write: %+v with immediate data %v", w.send, unpack(w.send.Imm))
		}
		p.until(func() error {
			for _, e := range p.pick(hostSide, recvDone) {
				if e.at > w.at && e.done.Imm == imm && e.done.Op == fabric.OpRecvWriteImm && e.done.Len == 256 {
					return nil
				}
			}
			return fmt.Errorf("the host has not got %v", unpack(imm))
		})
		return
	}
}

func TestIndicationTellsBytesWritten(t *testing.T)     { inMemory(t, indicationTellsBytesWritten) }
func TestRDMAIndicationTellsBytesWritten(t *testing.T) { onSoftRoCE(t, indicationTellsBytesWritten) }

// The third field of the figure's example could be the size of the element or the number of bytes
// written to the element, which are equal in the example. Frames that do not fill their elements
// show that the field is the number of bytes, in both directions. The element's size is known from
// its pool.
func indicationTellsBytesWritten(t *testing.T, on fabricOf) {
	const size = 2048
	p := newPair(t, on, messaging.Config{Pools: []messaging.PoolConfig{{ElementSize: size, Elements: 64}}})
	for _, from := range sides {
		for _, n := range []int{60, 256, 700, 1500} {
			p.cross(from, 0, n)
			ws := p.writes(from)
			w := ws[len(ws)-1]
			if _, _, third := protocol.ImmData(w.send.Imm).Unpack(); w.pool.ElementSize != size || int(third) != n {
				t.Errorf("%s: %d bytes in an element of %d: the immediate data is %s", from, n, w.pool.ElementSize,
					unpack(w.send.Imm))
			}
			p.until(func() error {
				for _, e := range p.pick(other(from), recvDone) {
					if e.at > w.at && e.done.Imm == w.send.Imm && int(e.done.Len) == n {
						return nil
					}
				}
				return fmt.Errorf("the %s has not got %s", other(from), unpack(w.send.Imm))
			})
		}
	}
}

func unpack(imm uint32) string {
	pool, element, length := protocol.ImmData(imm).Unpack()
	return fmt.Sprintf("(%d, %d, %d)", pool, element, length)
}
