package control

import (
	"fmt"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/core"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/memory"
	"github.com/splitnic/splitnic/splitdrv/seal"
)

// Sends is the send queue of the control channel. Any goroutine may send a message.
// The control handler frees the slots of completed messages.
type Sends struct {
	QP  fabric.QP
	reg fabric.Region
	mem []byte // the slots
	// size is that of a slot, in bytes, and sealer, which may be nil, seals the messages.
	size   int
	sealer *seal.Sealer

	mu         sync.Mutex // guards all fields from here to progress
	room       sync.Cond  // signaled when a slot is free again, or the session ends
	free       []uint16   // free slots; the last one is used first, because it is likely to be in the cache
	out        []uint16   // slots in flight, in order: a ring of nOut slots, beginning at first
	first      int
	nOut       int
	unsignaled int              // messages since the last signaled one
	wr         [1]fabric.SendWR // a field, because a variable on the stack would escape
	padded     uint32           // length in bytes of the second message; 0: that of its content
	blocked    []*core.Wakeup   // receivers whose update found no free slot
	closed     bool
	progress   func() error // polls completions; nil if the handler does

	Sent atomic.Uint64
}

func (s *Sends) init(qp fabric.QP, reg fabric.Region, mem []byte, o *Options) {
	s.QP, s.reg, s.mem, s.size, s.sealer = qp, reg, mem, SlotSize(o.Sealer != nil), o.Sealer
	n := len(mem) / s.size
	s.out = make([]uint16, n)
	s.room.L = &s.mu
	for i := range n {
		s.free = append(s.free, uint16(i))
	}
}

// slotOf returns buffer i of the control channel, of buffers of size bytes.
func slotOf(mem []byte, size int, i uint16) []byte { return mem[int(i)*size:][:size] }

// Send sends one message, which build appends to dst, in registered memory. If no slot is
// free it waits for one, so the control handler, which frees the slots, must not call it.
// build runs with the lock held; it returns nil if there is nothing to send after all.
func (s *Sends) Send(build func(dst []byte) []byte) error {
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

// pollForRoom polls completions, which can free slots. The caller holds the lock, which is
// released in between.
func (s *Sends) pollForRoom() error {
	s.mu.Unlock()
	defer s.mu.Lock()
	runtime.Gosched()
	return s.progress()
}

// sendNow is send without waiting. It reports whether a slot was free.
func (s *Sends) sendNow(build func(dst []byte) []byte) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.free) == 0 {
		return false, nil
	}
	return true, s.post(build)
}

// TrySend is send for a receiver's updates. It does not wait, and leaves
// protocol.OtherControl slots free for other messages. If no further slot is free, it
// returns false, and wakes the receiver when there is one.
func (s *Sends) TrySend(receiver *core.Wakeup, build func(dst []byte) []byte) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false, nil
	}
	if len(s.free) <= protocol.OtherControl {
		if !slices.Contains(s.blocked, receiver) {
			s.blocked = append(s.blocked, receiver)
		}
		return false, nil
	}
	return true, s.post(build)
}

// signalEvery is the number of messages of which one is signaled. Each completion wakes
// the handler.
const signalEvery = 8

// post builds a message in a free slot and sends it. The caller holds the lock, and has
// checked that a slot is free.
func (s *Sends) post(build func(dst []byte) []byte) error {
	last := len(s.free) - 1
	slot := s.free[last]
	msg := build(slotOf(s.mem, s.size, slot)[:0])
	if msg == nil {
		s.room.Signal()
		return nil
	}
	s.free = s.free[:last]
	if s.Sent.Load() == 1 && s.padded > 0 {
		msg = msg[:max(len(msg), int(s.padded)-s.tail())] // the slot was not used before: zeros follow
	}
	if s.sealer != nil {
		msg = s.sealer.Seal(msg, 0, 0)
	}
	s.wr[0] = fabric.SendWR{
		ID:   uint64(protocol.PackWRID(protocol.WRControlSend, 0, slot, 0)),
		Addr: memory.Address(msg), Len: uint32(len(msg)), LKey: s.reg.LKey(),
		Op: fabric.OpSend, Flags: fabric.Solicited,
	}
	if s.unsignaled++; s.unsignaled >= signalEvery {
		s.unsignaled = 0
		s.wr[0].Flags |= fabric.Signaled
	}
	s.out[(s.first+s.nOut)%len(s.out)] = slot
	s.nOut++
	if _, err := s.QP.PostSend(s.wr[:]); err != nil {
		return fmt.Errorf("send on the control channel: %w", fabric.Refused(s.QP, err))
	}
	s.Sent.Add(1)
	return nil
}

// tail returns the number of bytes that sealing adds to a message.
func (s *Sends) tail() int { return s.size - protocol.MaxControlSize }

// release frees the slot of a message that has completed, and those of all messages before
// it, and wakes the goroutines that wait for a slot.
func (s *Sends) release(slot uint16) {
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
		r.Wake()
	}
}

// Close wakes the goroutines that wait for a slot. No more messages are sent.
func (s *Sends) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.room.Broadcast()
}

// Options are the settings of the control channel, of the requests on it, and of the
// keep-alives. The fields are those of Config with the same names.
type Options struct {
	TrafficClass uint8
	ServiceLevel uint8
	Poll         bool

	Sealer *seal.Sealer // nil, as Opener: messages are sent as they are
	Opener *seal.Opener

	KeepAlive   time.Duration
	PeerTimeout time.Duration
	AskLast     bool
	OnHears     func(bool)

	OnRequest func(t protocol.CfgType, data []byte) (protocol.CfgStatus, []byte)
	Pace      func(t protocol.CfgType, data []byte) time.Duration
}

// SlotSize returns the size in bytes of a buffer for a message.
func SlotSize(sealed bool) int {
	if sealed {
		return protocol.MaxControlSize + seal.Overhead
	}
	return protocol.MaxControlSize
}
