package paths

import (
	"bytes"
	"errors"
	"testing"

	"github.com/splitnic/splitnic/vnet"
)

// ringModel is a model of a ring: a list of frames without the ring's memory.
type ringModel struct {
	frames [][]byte
	queues []int
	used   int
}

func (m *ringModel) put(frame []byte, queue int) {
	m.frames = append(m.frames, bytes.Clone(frame))
	m.queues = append(m.queues, queue)
	m.used += recordHeader + len(frame)
}

func (m *ringModel) forget() {
	m.used -= recordHeader + len(m.frames[0])
	m.frames, m.queues = m.frames[1:], m.queues[1:]
}

// FuzzRing applies steps to a ring and to its model, and compares them. Each step is two bytes: an
// operation and a size.
func FuzzRing(f *testing.F) {
	f.Add([]byte{0, 10, 1, 200, 0, 3, 4, 2, 5, 7})
	f.Add(bytes.Repeat([]byte{0, 90, 1, 33, 4, 2}, 20))
	f.Add(bytes.Repeat([]byte{0, 90, 7, 60, 4, 200}, 20))
	f.Fuzz(func(t *testing.T, steps []byte) {
		const size = 300
		var r, other ring
		var m ringModel
		r.open(size)
		other.open(size)
		next := byte(0)
		shut := false
		for ; len(steps) >= 2; steps = steps[2:] {
			do, n := steps[0]%8, int(steps[1])
			switch do {
			case 0, 1, 2, 3: // put
				frame := bytes.Repeat([]byte{next}, n)
				next++
				if ok := r.put(frame, int(do), 0); ok != (m.used+recordHeader+n <= len(r.buf)) {
					t.Fatalf("%d bytes more than %d: %v", n, m.used, ok)
				} else if ok {
					m.put(frame, int(do))
				}
			case 4, 5: // take
				ops := make([]vnet.ReadOp, do-2)
				for i := range ops {
					ops[i].Slot = make([]byte, 250-do)
				}
				got, queue := r.take(ops)
				if (got == 0) != (shut || len(m.frames) == 0) {
					t.Fatalf("%d frames of %d", got, len(m.frames))
				}
				for _, op := range ops[:got] {
					want, from := m.frames[0], m.queues[0]
					m.forget()
					if long := len(want) > len(op.Slot); long != errors.Is(op.Err, vnet.ErrTooLong) ||
						!long && !bytes.Equal(op.Frame, want) || from != queue {
						t.Fatalf("%x of %d, %v, instead of %x of %d", op.Frame, queue, op.Err, want, from)
					}
				}
			case 6:
				shut = n%2 == 0
				r.setShut(shut)
			case 7:
				frame := bytes.Repeat([]byte{next}, n)
				next++
				if ok := r.put(frame, 7, 2*size); ok != (m.used+recordHeader+n <= 2*size) {
					t.Fatalf("%d bytes more than %d: %v", n, m.used, ok)
				} else if ok {
					m.put(frame, 7)
				}
			}
			if r.used != m.used || int(r.frames.Load()) != len(m.frames) ||
				r.ready.Load() != (!shut && len(m.frames) > 0) {
				t.Fatalf("%d bytes, %d frames, ready %v; %d, %d", r.used, r.frames.Load(), r.ready.Load(), m.used,
					len(m.frames))
			}
		}
		lost := r.moveTo(func(int) (*ring, int) { return &other, 2 * size })
		if int(other.frames.Load())+lost != len(m.frames) || other.used > 2*size || r.used != 0 {
			t.Fatalf("%d frames moved, %d lost, of %d", other.frames.Load(), lost, len(m.frames))
		}
		for i := range other.frames.Load() {
			ops := []vnet.ReadOp{{Slot: make([]byte, 256)}}
			if n, queue := other.take(ops); n != 1 || queue != m.queues[i] || !bytes.Equal(ops[0].Frame, m.frames[i]) {
				t.Fatalf("frame %d moved is %x of %d, want %x of %d", i, ops[0].Frame, queue, m.frames[i], m.queues[i])
			}
		}
		if len(other.buf) != size {
			t.Errorf("an empty ring has %d bytes", len(other.buf))
		}
	})
}

func TestRingRoom(t *testing.T) {
	var r ring
	r.open(minRing)
	limit := minRing * 3 / 4
	for want := 3; want >= 0; want-- {
		if got := r.room(limit); got != want {
			t.Fatalf("room for %d, want %d", got, want)
		}
		if !r.put(make([]byte, vnet.MaxFrame), 0, 0) {
			t.Fatal("there is no room")
		}
	}
	if got := r.room(limit); got != 0 || r.put(make([]byte, 1), 0, 0) {
		t.Error("the ring is not full")
	}
}
