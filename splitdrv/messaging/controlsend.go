package messaging

import (
	"fmt"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
)

// controlSends is the send queue of the control channel: anybody may send a message,
// and the control handler frees the slots of those that have completed.
type controlSends struct {
	qp  fabric.QP
	reg fabric.Region
	mem []byte // the slots

	mu         sync.Mutex // guards what follows
	room       sync.Cond  // a slot came free, or the session ended
	free       []uint16   // slots; the latest is taken first, whose memory is likely to be in the cache
	out        []uint16   // those of messages on their way, in order, in the ring behind first
	first      int
	nOut       int
	unsignaled int              // messages since the last one that asked for a completion
	wr         [1]fabric.SendWR // here, because one on the stack would be allocated
	blocked    []*queue[rxEvent]
	closed     bool
	progress   func() error // polls for completions; nil if there is a handler for that

	sent atomic.Uint64
}

func (s *controlSends) init(qp fabric.QP, reg fabric.Region, mem []byte, n int) {
	s.qp, s.reg, s.mem, s.out = qp, reg, mem, make([]uint16, n)
	s.room.L = &s.mu
	for i := range n {
		s.free = append(s.free, uint16(i))
	}
}

// controlSlot is a buffer of the control channel.
func controlSlot(mem []byte, i uint16) []byte {
	return mem[int(i)*protocol.MaxControlSize:][:protocol.MaxControlSize]
}

// send sends one message, built by build in registered memory, and waits for a
// free slot if there is none. It must not be called by the handler, which is
// the one who frees slots. build, which runs with the lock held, may find that
// there is nothing to send, and returns nil.
func (s *controlSends) send(build func(dst []byte) []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.free) == 0 && !s.closed {
		if s.progress == nil {
			s.room.Wait()
		} else if err := s.pollForRoom(); err != nil {
			return err
		}
	}
	if s.closed {
		return net.ErrClosed
	}
	return s.post(build)
}

// pollForRoom has the caller, which may be the one who frees slots, poll for completions
// meanwhile. It holds the lock before and after.
func (s *controlSends) pollForRoom() error {
	s.mu.Unlock()
	defer s.mu.Lock()
	runtime.Gosched()
	return s.progress()
}

// sendNow is send for who must not wait: it reports whether there was a slot.
func (s *controlSends) sendNow(build func(dst []byte) []byte) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.free) == 0 {
		return false, nil
	}
	return true, s.post(build)
}

// trySend is send for a receiver's updates, which do not wait: it reports whether
// there was a slot, and if not the receiver hears when there is one. So many slots as
// protocol.OtherControl are left for other messages.
func (s *controlSends) trySend(r *queue[rxEvent], build func(dst []byte) []byte) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false, nil
	}
	if len(s.free) <= protocol.OtherControl {
		if !slices.Contains(s.blocked, r) {
			s.blocked = append(s.blocked, r)
		}
		return false, nil
	}
	return true, s.post(build)
}

// signalEvery is how many messages there are to one that asks for a completion.
// Each wakes the handler, whom the others would wake in vain.
const signalEvery = 8

// post sends the message that is built in a free slot. The caller holds the lock and
// has seen one.
func (s *controlSends) post(build func(dst []byte) []byte) error {
	last := len(s.free) - 1
	slot := s.free[last]
	msg := build(controlSlot(s.mem, slot)[:0])
	if msg == nil {
		s.room.Signal()
		return nil
	}
	s.free = s.free[:last]
	s.wr[0] = fabric.SendWR{
		ID:   uint64(protocol.PackWRID(protocol.WRControlSend, 0, slot, 0)),
		Addr: address(msg), Len: uint32(len(msg)), LKey: s.reg.LKey(),
		Op: fabric.OpSend, Flags: fabric.Solicited,
	}
	if s.unsignaled++; s.unsignaled >= signalEvery {
		s.unsignaled = 0
		s.wr[0].Flags |= fabric.Signaled
	}
	s.out[(s.first+s.nOut)%len(s.out)] = slot
	s.nOut++
	if _, err := s.qp.PostSend(s.wr[:]); err != nil {
		return fmt.Errorf("send on the control channel: %w", err)
	}
	s.sent.Add(1)
	return nil
}

// release frees the slots of a message that has been delivered and of all before it,
// and lets those go on that had to wait for one.
func (s *controlSends) release(slot uint16) {
	s.mu.Lock()
	for done := false; !done && s.nOut > 0; {
		oldest := s.out[s.first]
		s.first = (s.first + 1) % len(s.out)
		s.nOut--
		s.free = append(s.free, oldest)
		done = oldest == slot
	}
	blocked := s.blocked
	s.blocked = nil
	s.mu.Unlock()
	s.room.Signal()
	for _, r := range blocked {
		r.put(rxEvent{kind: rxUnblocked})
	}
}

// close wakes those who wait for a slot. Nothing is sent from now on.
func (s *controlSends) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.room.Broadcast()
}

// address is the virtual address of b's first byte, for a work request. b lies
// in an arena, which does not move.
func address(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }
