package messaging_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// slotsAtFirst is the number of send slots that a channel begins with, and slotBytes the size
// of each.
const slotsAtFirst, slotBytes = 8, messaging.MaxElementSize

// slotted is a sending endpoint, a, whose peer can be stalled, so that the slots of all frames
// that it sends stay in use.
type slotted struct {
	n     *fabrictest.Network
	a, b  *endpoint
	begin int // bytes registered for the channel at the beginning
	buf   [1 << 16]byte
}

const slottedFrames = 200

func newSlotted(t *testing.T, cfg messaging.Config) *slotted {
	t.Helper()
	s := &slotted{}
	s.n, s.a, s.b = newPair(t, cfg, patient(messaging.Config{}))
	until(t, func() error {
		if s.a.conn.Stats().Channels[0].Remote.Elements < slottedFrames {
			return errors.New("nothing is lent")
		}
		return nil
	})
	s.begin = s.a.conn.Stats().Channels[0].MemoryPinned
	return s
}

// stall stalls the peer, and sends more frames than there can be slots.
func (s *slotted) stall(t *testing.T) {
	t.Helper()
	s.n.Stall("b")
	for i := range uint64(slottedFrames) {
		if err := s.a.wires[0].Send(deadline(t), frame(i, 1000, 1500)); err != nil {
			t.Fatal(err)
		}
	}
}

// awaitSlots waits until the channel has this number of slots, and the sender has too few free
// ones.
func (s *slotted) awaitSlots(t *testing.T, slots int) {
	t.Helper()
	until(t, func() error {
		c := s.a.conn.Stats().Channels[0]
		if more := c.MemoryPinned - s.begin; more != (slots-slotsAtFirst)*slotBytes {
			return fmt.Errorf("%d bytes more instead of %d slots, of which %d were there", more, slots, slotsAtFirst)
		}
		few := max(slots/4, min(slots/2, 8))
		if c.TxNoSlot == 0 || c.TxFrames > uint64(slots) || c.TxFrames < uint64(slots-few) {
			return fmt.Errorf("%d frames have left, short of slots %d times", c.TxFrames, c.TxNoSlot)
		}
		return nil
	})
}

// resume resumes the peer, and expects all frames, in order.
func (s *slotted) resume(t *testing.T) {
	t.Helper()
	s.n.Resume("b")
	for i := range uint64(slottedFrames) {
		s.arrive(t, i)
	}
	untroubled(t, s.n, s.a, s.b)
}

// arrive expects frame i next.
func (s *slotted) arrive(t *testing.T, i uint64) {
	t.Helper()
	f, err := s.b.wires[0].Receive(deadline(t), s.buf[:])
	if err != nil {
		t.Fatal(err)
	}
	if string(f) != string(frame(i, 1000, 1500)) {
		t.Fatalf("frame %d is another one, or has changed", i)
	}
}

// TestFewSlots expects that a channel that sends one frame at a time keeps the number of send
// slots that it began with.
func TestFewSlots(t *testing.T) {
	s := newSlotted(t, patient(messaging.Config{}))
	for i := range uint64(slottedFrames) {
		if err := s.a.wires[0].Send(deadline(t), frame(i, 1000, 1500)); err != nil {
			t.Fatal(err)
		}
		s.arrive(t, i)
	}
	if c := s.a.conn.Stats().Channels[0]; c.MemoryPinned != s.begin || c.TxNoSlot != 0 {
		t.Errorf("frame by frame takes %d bytes more, and was short of slots %d times", c.MemoryPinned-s.begin, c.TxNoSlot)
	}
	untroubled(t, s.n, s.a, s.b)
}

// TestSlotsGrow expects that a channel gets up to Config.SendSlots send slots when all are in
// use.
func TestSlotsGrow(t *testing.T) {
	for _, most := range []int{20, 50, 64} {
		t.Run(fmt.Sprint(most), func(t *testing.T) {
			s := newSlotted(t, patient(messaging.Config{SendSlots: most, Batch: 3}))
			s.stall(t)
			s.awaitSlots(t, most)
			s.resume(t)
		})
	}
}

// TestSlotsWithoutMemory expects that a channel goes on with the slots that it has while there
// is no memory for more, and gets more when there is memory.
func TestSlotsWithoutMemory(t *testing.T) {
	cfg := patient(messaging.Config{})
	cfg.Budget = messaging.NewBudget(2*cfg.LeastMemory() + 7*slotBytes)
	other := fabrictest.New().Device("c")
	t.Cleanup(func() { other.Close() })
	s := newSlotted(t, cfg)
	rest := patient(messaging.Config{Device: other, Budget: cfg.Budget})
	conn, err := messaging.New(rest)
	if err != nil {
		t.Fatal(err)
	}
	s.stall(t)
	s.awaitSlots(t, slotsAtFirst)
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	s.awaitSlots(t, 64)
	s.resume(t)
}
