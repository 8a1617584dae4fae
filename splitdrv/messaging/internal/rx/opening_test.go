package rx

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/core"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/core/coretest"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/pools"
	"github.com/splitnic/splitnic/splitdrv/seal"
	"github.com/splitnic/splitnic/vnet"
)

// lateWriter is a port at which the peer writes to all its elements again, before the frames are read.
type lateWriter struct {
	core.Port
	pool *bufpool.Local
	got  [][]byte // each frame, with the bytes behind it where a tag was
}

func (w *lateWriter) WriteFrames(ops []vnet.WriteOp) int {
	for i := range w.pool.Elements.Len() {
		clear(w.pool.Element(uint16(i)))
	}
	for _, op := range ops {
		w.got = append(w.got, slices.Clone(op.Head[:len(op.Head)+seal.Overhead]))
	}
	return len(ops)
}

// TestSealedElementIsCopied receives sealed transfers in elements that the peer can still write. A
// cipher reads its input twice, so it must get a copy of the element, and the port the frame of this
// copy. The copy is seen by the tag, which a cipher reads and does not write: it is behind the frame.
func TestSealedElementIsCopied(t *testing.T) {
	for _, mode := range []protocol.Mode{protocol.ModeImm, protocol.ModeIndicate} {
		t.Run(string(mode), func(t *testing.T) {
			c := coretest.New(t, mode)
			c.MTU.Store(1500)
			var ends [2]*seal.Keys
			for i := range ends {
				k, err := seal.NewKeys(seal.AES128GCM, [seal.SecretSize]byte{1, 2, 3}, i == 0)
				if err != nil {
					t.Fatal(err)
				}
				ends[i] = k
			}
			sealer := ends[0].Sealer(1, string(mode))
			m := pools.New(c, pools.Options{Channels: 1, Idle: time.Minute}, nil, nil)
			o := Options{Receives: 80, Opener: ends[1].Opener(1, string(mode))}
			shared, err := m.AddChannel(nil, 1, pools.SlotSize)
			if err != nil {
				t.Fatal(err)
			}
			r := New(c, o, coretest.Channel(t, c, 1, 80, fabric.QPConfig{}), nil, shared, nil, m)
			r.ch.QP = bottomlessQP{r.ch.QP}
			lent, err := m.First(1, pools.Config{ElementSize: 2048, Elements: 16})
			if err == nil {
				err = r.Adopt(lent)
			}
			if err != nil {
				t.Fatal(err)
			}
			port := &lateWriter{pool: lent}
			r.out.port = port
			for elem := range 5 {
				frame := bytes.Repeat([]byte{2}, vnet.HdrLen+vnet.EthLen+100*elem)
				clear(frame[:vnet.HdrLen])
				sealed := sealer.Seal(append(lent.Element(uint16(elem))[:0], frame...), lent.Ref, uint32(elem))
				tag := slices.Clone(sealed[len(frame):])
				if mode == protocol.ModeImm {
					r.comps[0] = fabric.Completion{Op: fabric.OpRecvWriteImm, Len: uint32(len(sealed)),
						Imm: uint32(protocol.PackImm(uint8(lent.Ref), uint8(elem), uint16(len(sealed))))}
					err = r.Deliver(1)
				} else {
					err = r.read(&core.RxEvent{Do: bufpool.Consume, Elem: uint32(elem), Length: uint32(len(sealed))})
					if err == nil {
						err = r.flush()
					}
				}
				if err != nil || len(port.got) != elem+1 {
					t.Fatalf("%d frames, error %v", len(port.got), err)
				}
				got, behind := port.got[elem][:len(frame)], port.got[elem][len(frame):]
				if !bytes.Equal(got, frame) {
					t.Errorf("frame %d is what was written to its element later", elem)
				}
				if !bytes.Equal(behind, tag) {
					t.Errorf("the cipher has read frame %d in the element, which the peer can change meanwhile", elem)
				}
			}
		})
	}
}
