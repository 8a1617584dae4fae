package tx

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/memory"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/pools"
)

const packSlots, packSlotSize, packElement = 8, 1024, 2048

// packing is a sender whose goroutine does not run. No device reads its slots.
type packing struct {
	*Sender
	mem []byte // memory of the slots
	qp  *notingQP
}

func newPacking(t *testing.T, mode protocol.Mode, o Options, inline, slotSize int) *packing {
	t.Helper()
	s := newIdle(t, mode, o, inline, pools.Options{})
	order := bufpool.LatestFirst
	if mode.Sends() {
		order = bufpool.InOrder
	}
	if err := s.pools.Notify(bufpool.Event{Kind: bufpool.Lent, Remote: bufpool.NewRemote(protocol.Pool{
		Ref: 1, Elements: 8, ElementSize: packElement, Context: protocol.PoolContext(1, 0),
	}, order)}); err != nil {
		t.Fatal(err)
	}
	p := &packing{Sender: s.Sender, mem: make([]byte, packSlots*slotSize)}
	p.Slots.Slots = bufpool.NewSlots(packSlots, slotSize)
	p.Slots.Add(p.mem, 1)
	p.qp = &notingQP{QP: s.ch.QP}
	s.ch.QP = p.qp
	return p
}

// put makes the sender send a frame of n bytes. joined reports that it was added to the open
// transfer; otherwise it is in a new one, in element elem.
func (p *packing) put(t *testing.T, r *rand.Rand, n int) (frame []byte, elem uint16, joined bool) {
	t.Helper()
	slot, ok := p.Slots.Take()
	if !ok {
		t.Fatal("no slot is free")
	}
	frame = p.Slots.Bytes(slot)[slotHeadroom:][:n]
	for i := range frame {
		frame[i] = byte(r.Uint32())
	}
	frame[0] = 0 // not the first byte of a pack
	sent := slices.Clone(frame)
	if p.out.join(frame, slot) {
		return sent, 0, true
	}
	g, elem, ok := p.Credits.Take(n, packElement)
	if !ok {
		t.Fatal("no element is available")
	}
	p.out.add(g, elem, frame, slot, nil)
	return sent, elem, false
}

// message returns the data of a transfer, in the order in which the device gathers it.
func (p *packing) message(wrs []fabric.SendWR) (b []byte) {
	for _, wr := range wrs {
		b = append(b, p.mem[wr.Addr-memory.Address(p.mem):][:wr.Len]...)
	}
	return b
}

// unpacked returns the frames of a message.
func unpacked(t *testing.T, mode protocol.Mode, b []byte) (frames [][]byte) {
	t.Helper()
	if mode.Sends() {
		m, err := protocol.DecodeSendData(b)
		if err != nil {
			t.Fatal(err)
		}
		b = m.Data
	}
	if !protocol.IsPack(b) {
		return [][]byte{b}
	}
	p, err := protocol.DecodePack(b)
	for err == nil && p.Left() > 0 {
		var f []byte
		f, err = p.Next()
		frames = append(frames, f)
	}
	if err != nil {
		t.Fatal(err)
	}
	return frames
}

// TestPackPieces puts frames into one transfer. It checks the number of pieces that the device
// gathers, the frames in them, and which slots are free: all if the data is inline, and
// otherwise those of the copied frames.
func TestPackPieces(t *testing.T) {
	const (
		most = 100 // length of the longest frame that is copied
		// A frame of fills bytes leaves room for one frame of most bytes in its slot.
		fills = packSlotSize - slotHeadroom - protocol.PackRecordSize - most
	)
	for _, tt := range []struct {
		copied int // Config.PackCopy
		sizes  []int
		pieces int
		inline bool
	}{
		{most, []int{60, most, most}, 1, false},
		{most, []int{60, most, most + 1}, 2, false},
		{most, []int{60, most + 1, 60}, 2, false}, // the third is copied behind the second
		{most, []int{most + 1, most}, 1, false},   // the first one is never copied
		{most, []int{60, 60}, 1, true},
		{most, []int{fills, most}, 1, false},
		{most, []int{fills, most - 1}, 1, false},
		{most, []int{fills + 1, most}, 2, false},
		{most, []int{fills, most, 60, 60}, 2, false}, // the first slot is full: the third begins a new piece
		{-1, []int{60, most, 60}, 3, false},
		{-1, []int{60, 60}, 2, true},
		{1 << 16, []int{60, 700, 60, 700}, 2, false},
	} {
		for _, mode := range protocol.Modes() {
			t.Run(fmt.Sprintf("%d, %v, %s", tt.copied, tt.sizes, mode), func(t *testing.T) {
				o := usual()
				o.PackCopy = tt.copied
				p := newPacking(t, mode, o, 160, packSlotSize)
				r := rand.New(rand.NewPCG(1, 1))
				var sent [][]byte
				var elem uint16
				bytesSent := 0
				room := p.out.room()
				for i, n := range tt.sizes {
					f, e, joined := p.put(t, r, n)
					if joined != (i > 0) {
						t.Fatalf("frame %d of %d bytes has joined the transfer: %t", i, n, joined)
					}
					if !joined {
						elem = e
					}
					sent = append(sent, f)
					bytesSent += n
				}
				if n := p.out.room(); n != room-len(sent) {
					t.Errorf("the batch has room for %d frames, and had for %d", n, room)
				}
				if n := packSlots - p.Slots.Free(); n != tt.pieces {
					t.Errorf("%d slots are in use by %d pieces", n, tt.pieces)
				}
				if _, _, lost := p.Left(); lost != uint64(len(sent)) {
					t.Errorf("%d of %d frames would be lost now", lost, len(sent))
				}
				if err := p.post(); err != nil {
					t.Fatal(err)
				}
				if len(p.qp.sent) != tt.pieces {
					t.Fatalf("%d pieces, want %d: %+v", len(p.qp.sent), tt.pieces, p.qp.sent)
				}
				for i, wr := range p.qp.sent {
					if (wr.Flags&fabric.More != 0) != (i < tt.pieces-1) || wr.Flags&fabric.Inline != 0 != (tt.inline && i == 0) {
						t.Errorf("piece %d has flags %v", i, wr.Flags)
					}
				}
				if got := unpacked(t, mode, p.message(p.qp.sent)); !slices.EqualFunc(got, sent, bytes.Equal) {
					t.Errorf("the transfer has other frames:\n% x\n% x", got, sent)
				}
				held := tt.pieces
				if tt.inline {
					held = 0
				}
				if n := packSlots - p.Slots.Free(); n != held || p.ring.len() != max(held, 1) {
					t.Errorf("%d slots and %d entries are in flight, want %d slots", n, p.ring.len(), held)
				}
				if n := p.Pools()[0].Uncertain(); int(n) != len(sent) {
					t.Errorf("element %d has %d frames, sent were %d", elem, n, len(sent))
				}
				if c := &p.Count; c.TxFrames.Load() != uint64(len(sent)) || c.TxBytes.Load() != uint64(bytesSent) ||
					c.TxPacks.Load() != 1 || c.TxPacked.Load() != uint64(len(sent)) || c.TxPosts.Load() != 1 {
					t.Errorf("%d frames of %d bytes: %d, %d, %d packs of %d frames, %d batches", len(sent), bytesSent,
						c.TxFrames.Load(), c.TxBytes.Load(), c.TxPacks.Load(), c.TxPacked.Load(), c.TxPosts.Load())
				}
			})
		}
	}
}

// TestPackEndsWithElement adds frames, copied or not. A frame that does not fit into the
// element of the open transfer must begin the next transfer, and the transfer with the third
// slot must be signaled, because SignalEvery is 3.
func TestPackEndsWithElement(t *testing.T) {
	for _, tt := range []struct {
		copied   int
		signaled []bool
	}{{100, []bool{false, false, true}}, {-1, []bool{false, true, false}}} {
		t.Run(fmt.Sprint(tt.copied), func(t *testing.T) {
			o := usual()
			o.PackCopy, o.SignalEvery, o.Batch, o.SendSlots = tt.copied, 3, 4, packSlots
			p := newPacking(t, protocol.ModeImm, o, 0, 1<<12)
			r := rand.New(rand.NewPCG(1, 1))
			const first = packElement - protocol.PackHeaderSize - 2*protocol.PackRecordSize - 100
			for i, size := range []int{first, 100, first, 100} {
				_, _, joined := p.put(t, r, size+i/2) // the third frame is one byte longer, so the fourth does not fit
				if joined != (i == 1) {
					t.Errorf("frame %d of %d bytes has joined the transfer: %t", i, size, joined)
				}
			}
			if p.out.room() != 0 {
				t.Errorf("room for %d frames beyond those of a batch", p.out.room())
			}
			if err := p.post(); err != nil {
				t.Fatal(err)
			}
			var signaled []bool
			more := false
			for _, wr := range p.qp.sent {
				if !more {
					signaled = append(signaled, wr.Flags&fabric.Signaled != 0)
				}
				more = wr.Flags&fabric.More != 0
			}
			if !slices.Equal(signaled, tt.signaled) || p.Count.TxSignaled.Load() != 1 {
				t.Errorf("asks for a completion: %v, want %v: the third slot is to", signaled, tt.signaled)
			}
		})
	}
}
