package messaging

import (
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/vnet"
)

// sender moves frames from a port to the peer, in a goroutine of its own.
type sender struct {
	c      *Conn
	ch     *channel
	port   Port
	slots  *bufpool.Slots
	region fabric.Region
	wake   *event // raised by the control handler when credits arrive while the sender sleeps for one
	asleep atomic.Bool
	grants atomic.Pointer[[]*grantedPool] // smallest elements first; replaced as a whole

	// A frame that was read and has no credit yet, and the slot it lies in.
	held     []byte
	heldSlot uint32
	holding  bool

	wrs    []fabric.SendWR // the batch
	slotOf []uint32        // the slot of each write in the batch
	bytes  int             // in the batch

	// Sequence numbers of writes, cumulative and compared by difference.
	posted    uint32 // or gathered to be
	completed uint32
	unsigned  int      // writes since the last signalled one
	busy      []inSlot // posted writes that hold a slot, a ring in the order of posting
	busyHead  int
	busyLen   int

	comps   [32]fabric.Completion
	waiters [wantCompletion + 1]*waiter // by what for; wantNothing has none
	count   txCounters
}

// grantedPool is one of the peer's pools.
type grantedPool struct {
	*bufpool.Grant
	ref uint32
}

// inSlot says that a slot is in use until write seq completes.
type inSlot struct{ seq, slot uint32 }

func newSender(c *Conn, ch *channel, slots *bufpool.Slots, region fabric.Region) *sender {
	s := &sender{
		c: c, ch: ch, slots: slots, region: region,
		wrs:    make([]fabric.SendWR, 0, c.cfg.Batch),
		slotOf: make([]uint32, 0, c.cfg.Batch),
		busy:   make([]inSlot, slots.Len()),
	}
	s.grants.Store(new([]*grantedPool))
	return s
}

// want is what a sender that cannot go on is waiting for.
type want uint8

const (
	wantNothing want = iota
	wantFrame
	wantCredit
	wantCompletion
)

// run is the sender's goroutine.
func (s *sender) run() error {
	for !s.c.stopped.Load() {
		w, err := s.fill()
		if err != nil {
			return err
		}
		if len(s.wrs) > 0 {
			if err := s.post(); err != nil {
				return err
			}
			continue
		}
		if w != wantNothing {
			if err := s.sleep(w); err != nil {
				return err
			}
		}
	}
	return nil
}

// fill gathers a batch of frames and says what stopped it. It returns after
// each frame that is dropped, so that a run of them neither keeps those before
// it from being posted nor the session from ending.
func (s *sender) fill() (want, error) {
	for len(s.wrs) < cap(s.wrs) && s.bytes < s.c.cfg.BatchBytes {
		if s.room() == 0 {
			if err := s.reclaim(); err != nil {
				return wantNothing, err
			}
			if s.room() == 0 {
				s.count.noSlot.Add(1)
				return wantCompletion, nil
			}
		}
		if !s.holding {
			if s.dry() {
				return wantCredit, nil
			}
			w, err := s.read()
			if w != wantNothing || err != nil {
				return w, err
			}
			if !s.holding {
				return wantNothing, nil // a frame was dropped
			}
		}
		g, elem, ok := s.credit(len(s.held))
		if !ok {
			if s.fitsNowhere(len(s.held)) {
				s.count.tooLong.Add(1)
				s.drop()
				return wantNothing, nil
			}
			return wantCredit, nil
		}
		s.add(g, elem)
	}
	return wantNothing, nil
}

// room is how many more writes can be gathered: each needs a slot and a work
// request. A held frame has its slot already.
func (s *sender) room() int {
	free := s.slots.Free()
	if s.holding {
		free++
	}
	return min(free, sqDepth(&s.c.cfg)-int(s.posted-s.completed))
}

// read takes the next frame from the port into a slot.
func (s *sender) read() (want, error) {
	slot, _ := s.slots.Take() // room has seen one
	frame, err := s.port.ReadFrame(s.slots.Bytes(slot))
	switch {
	case err == nil:
		s.held, s.heldSlot, s.holding = frame, slot, true
		return wantNothing, nil
	case err == unix.EAGAIN:
		s.slots.Put(slot)
		return wantFrame, nil
	case err == vnet.ErrTooLong:
		s.slots.Put(slot)
		s.count.tooLong.Add(1)
		return wantNothing, nil
	case err == vnet.ErrInvalid:
		s.slots.Put(slot)
		s.count.invalid.Add(1)
		return wantNothing, nil
	default:
		s.slots.Put(slot)
		return wantNothing, fmt.Errorf("read a frame from queue %d of the netdevice: %w", s.ch.number, err)
	}
}

// drop forgets the held frame.
func (s *sender) drop() {
	s.slots.Put(s.heldSlot)
	s.held, s.holding = nil, false
}

// dry reports whether no pool has a credit.
func (s *sender) dry() bool {
	for _, g := range *s.grants.Load() {
		if !g.Empty() {
			return false
		}
	}
	return true
}

// credit takes an element of the smallest pool that fits n bytes and has one.
func (s *sender) credit(n int) (*grantedPool, uint16, bool) {
	for _, g := range *s.grants.Load() {
		if g.ElementSize() >= n {
			if elem, ok := g.Take(); ok {
				return g, elem, true
			}
		}
	}
	return nil, 0, false
}

// fitsNowhere reports whether no pool of the peer's has elements of n bytes.
func (s *sender) fitsNowhere(n int) bool {
	grants := *s.grants.Load()
	return len(grants) > 0 && grants[len(grants)-1].ElementSize() < n
}

// add puts the held frame into the batch.
func (s *sender) add(g *grantedPool, elem uint16) {
	n := len(s.held)
	s.posted++
	wr := fabric.SendWR{
		ID:         uint64(protocol.PackWRID(protocol.WRDataWrite, uint8(s.ch.number), 0, s.posted)),
		Addr:       address(s.held),
		Len:        uint32(n),
		LKey:       s.region.LKey(),
		RemoteAddr: g.Address(elem),
		RKey:       g.RKey(),
		Imm:        uint32(protocol.PackImm(uint8(g.ref), uint8(elem), uint16(n))),
		Op:         fabric.OpWriteImm,
	}
	if n <= s.c.cfg.MaxInline {
		wr.Flags |= fabric.Inline
		s.count.inline.Add(1)
	}
	if s.unsigned++; s.unsigned >= s.c.cfg.SignalEvery {
		wr.Flags |= fabric.Signaled
		s.unsigned = 0
		s.count.signaled.Add(1)
	}
	s.wrs = append(s.wrs, wr)
	s.slotOf = append(s.slotOf, s.heldSlot)
	s.bytes += n
	s.held, s.holding = nil, false
}

// post rings the doorbell for the batch. Only its last write asks for the
// peer's attention.
func (s *sender) post() error {
	s.wrs[len(s.wrs)-1].Flags |= fabric.Solicited
	if n, err := s.ch.qp.PostSend(s.wrs); err != nil {
		return fmt.Errorf("post write %d of a batch of %d on data channel %d: %w", n, len(s.wrs), s.ch.number, err)
	}
	first := s.posted - uint32(len(s.wrs)) + 1
	for i := range s.wrs {
		if s.wrs[i].Flags&fabric.Inline != 0 {
			s.slots.Put(s.slotOf[i])
			continue
		}
		s.busy[(s.busyHead+s.busyLen)%len(s.busy)] = inSlot{seq: first + uint32(i), slot: s.slotOf[i]}
		s.busyLen++
	}
	s.count.frames.Add(uint64(len(s.wrs)))
	s.count.bytes.Add(uint64(s.bytes))
	s.count.posts.Add(1)
	s.count.solicited.Add(1)
	s.wrs, s.slotOf, s.bytes = s.wrs[:0], s.slotOf[:0], 0
	return nil
}

// reclaim polls for completed writes and frees their slots. The completion of
// a write completes all that were posted before it.
func (s *sender) reclaim() error {
	for {
		n, err := s.ch.sendCQ.Poll(s.comps[:])
		if err != nil {
			return fmt.Errorf("poll the send queue of data channel %d: %w", s.ch.number, err)
		}
		for i := range s.comps[:n] {
			c := &s.comps[i]
			if err := c.Err(); err != nil {
				return fmt.Errorf("write on data channel %d: %w", s.ch.number, err)
			}
			kind, _, _, seq := protocol.WRID(c.ID).Unpack()
			if kind != protocol.WRDataWrite {
				return fmt.Errorf("data channel %d completed a %v", s.ch.number, protocol.WRID(c.ID))
			}
			s.completed = seq
		}
		for s.busyLen > 0 && int32(s.completed-s.busy[s.busyHead].seq) >= 0 {
			s.slots.Put(s.busy[s.busyHead].slot)
			s.busyHead = (s.busyHead + 1) % len(s.busy)
			s.busyLen--
		}
		if n < len(s.comps) {
			return nil
		}
	}
}

// open makes the waiters, now that the port is known.
func (s *sender) open() error {
	for w, i := range [...]interest{
		wantFrame:      {s.port.FD(), unix.EPOLLIN},
		wantCredit:     {s.wake.fd, unix.EPOLLIN},
		wantCompletion: {s.ch.sendCQ.FD(), unix.EPOLLIN},
	} {
		if want(w) == wantNothing {
			continue
		}
		var err error
		if s.waiters[w], err = s.c.newWaiter(i); err != nil {
			return err
		}
	}
	return nil
}

// sleep waits for what the sender wants, or the end of the session.
func (s *sender) sleep(w want) error {
	switch w {
	case wantFrame:
		// Freeing slots now costs nothing: there is nothing else to do.
		if err := s.reclaim(); err != nil {
			return err
		}
	case wantCredit:
		s.count.noCredit.Add(1)
		s.wake.clear()
		s.asleep.Store(true)
		defer s.asleep.Store(false)
		// A credit that came before asleep was set raises no event.
		if s.creditCame() {
			return nil
		}
	case wantCompletion:
		if err := s.ch.sendCQ.Arm(false); err != nil {
			return err
		}
		if err := s.reclaim(); err != nil {
			return err
		}
		if s.room() > 0 {
			return nil
		}
	}
	if err := s.waiters[w].wait(); err != nil {
		return err
	}
	if w == wantCompletion {
		if _, err := s.ch.sendCQ.ReadEvent(); err != nil {
			return err
		}
	}
	return nil
}

// creditCame reports whether what the sender waits for has come: any credit,
// or one for the held frame.
func (s *sender) creditCame() bool {
	if !s.holding {
		return !s.dry()
	}
	for _, g := range *s.grants.Load() {
		if g.ElementSize() >= len(s.held) && !g.Empty() {
			return true
		}
	}
	return false
}

// credited tells a sleeping sender that credits came. Called by the control
// handler.
func (s *sender) credited() {
	if s.asleep.Load() {
		s.wake.set()
	}
}
