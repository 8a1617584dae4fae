package messaging

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/epoll"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/vnet"
)

// The transmit path, from a port to the peer. Each data channel has one goroutine that
// goes through these stages. The functions in this file are in the same order. The
// handling of a frame inside a batch is in transfer.go.
//
//	run        repeats work until the session ends, and sleeps while nothing can be sent
//	work       repeats step; if something is missing, prepares to sleep until it arrives
//	step       goes once through all the following stages and never waits
//	makeBatch  makes a batch:
//	  shortOf    says whether another transfer can be sent, and if not, what is missing
//	  read       reads frames from the port into slots, and drops those that no peer accepts (input.go)
//	  join       adds a frame to the last transfer of the batch (transfer.go), or else
//	  add        takes a remote element (credits.go) and begins a transfer (transfer.go)
//	post       rings the doorbell for the batch; its work requests are now in flight (inflight.go)
//	reclaim    polls completions and frees slots; some completions make an indication due
//	settle     sends indications (indications.go) and carries out the requests of other
//	           goroutines: binds and invalidates windows, lets go of retired pools (windows.go)
//	prepare    arms the completion queue and checks once more

// sender moves frames from a port to the peer. Its fields belong to its goroutine, except
// the queue of requests, the credits and the atomic counters.
type sender struct {
	c        *shared
	o        *sendOptions
	ch       *dataQP
	control  *controlSends
	pools    *poolManager
	w        *worker
	queue    queue[sqRequest] // requests of other goroutines
	requests sqRequests       // requests taken from the queue and not yet completed

	in  input
	out batch
	sendQueue
	indications indications
	credits

	paused       atomic.Bool   // reads no more frames
	waiters      [4]*epoll.Set // indexed by a mask of waitPort and waitCompletion
	mask         int           // index of the waiter in use
	notification notification  // of the send completion queue
	comps        [32]fabric.Completion
	count        txCounters
}

func newSender(
	c *shared, o *sendOptions, ch *dataQP, slots *sendSlots, control *controlSends, pools *poolManager,
) (*sender, error) {
	s := &sender{c: c, o: o, ch: ch, control: control, pools: pools}
	s.sendQueue = newSendQueue(ch, o, &s.count)
	s.indications.init(c.mode, sqDepth(o))
	s.requests = sqRequests{sendQueue: &s.sendQueue, indications: &s.indications, pools: pools}
	s.in = newInput(slots, o.Batch, &s.count, o.Path)
	s.out = batch{
		o: o, mode: c.mode, channel: uint8(ch.number), slots: slots, signalEvery: signalOneIn(o, slots.Len()),
		pieces: maxPieces(o), inline: ch.qp.MaxInline(), requests: &s.sendQueue, count: &s.count,
		wrs: make([]fabric.SendWR, 0, o.Batch*(1+lentPieces(o))), held: make([]inFlightEntry, 0, o.Batch),
	}
	s.remote.Store(new([]*bufpool.Remote))
	var err error
	if s.queue.wake, err = c.newEvent(); err != nil {
		return nil, err
	}
	role := RoleSender
	if o.Poll {
		role = RoleBoth
	}
	s.credits.wake = s.queue.wake
	s.w = c.handlers.newWorker(ch.number, role, s.queue.wake)
	return s, nil
}

// begin makes the waiters. It is called once the port is known. keys are the keys of the
// registered memory from which the port lends frames.
func (s *sender) begin(port Port, keys *atomic.Pointer[vnet.Keys]) (err error) {
	s.in.port = port
	s.in.paced, _ = port.(PacedPort)
	s.in.shared, _ = port.(SharedPort)
	s.in.loans = newLoans(s.o, keys, port, func() { s.queue.put(sqRequest{kind: sqRecall}) })
	s.notification = notification{cq: s.ch.sendCQ}
	for w := range s.waiters {
		interests := []epoll.Interest{epoll.Readable(s.queue.wake.FD())}
		if w&waitPort != 0 {
			interests = append(interests, epoll.Readable(port.FD()))
		}
		if w&waitCompletion != 0 {
			interests = append(interests, epoll.Readable(s.ch.sendCQ.FD()))
		}
		if s.waiters[w], err = s.c.newWaiter(interests...); err != nil {
			return err
		}
	}
	return nil
}

// The events that a sender's waiter waits for, in addition to its queue.
const (
	waitPort = 1 << iota
	waitCompletion
)

// run is the sender's goroutine.
func (s *sender) run() error {
	defer s.in.release()
	work := s.work // a method value is an allocation: make it once
	for !s.c.stopped.Load() {
		if err := s.waiters[s.mask].Run(work); err != nil {
			return err
		}
	}
	return nil
}

// work repeats step until something is missing. The waiter calls it again after each
// event. leave is true if another waiter is needed, or if the session has ended.
func (s *sender) work() (leave bool, err error) {
	if s.queue.asleep.Swap(false) {
		s.waiting.Store(false)
		s.w.woke()
	}
	s.in.drained = false
	for !s.c.stopped.Load() {
		short, err := s.step()
		if err != nil {
			return true, err
		}
		if short == shortOfNothing {
			continue
		}
		if mask := s.missing(short); mask != s.mask {
			s.mask = mask
			return true, nil
		}
		if sleeps, err := s.prepare(short); sleeps || err != nil {
			return err != nil, err
		}
	}
	return true, nil
}

// step does all work that is possible now and returns what is missing for more. It never
// waits.
func (s *sender) step() (shortage, error) {
	if s.queue.pending.Load() {
		if err := s.readQueue(); err != nil {
			return shortOfNothing, err
		}
	}
	if s.wantsCompletions() {
		if err := s.settle(); err != nil {
			return shortOfNothing, err
		}
	}
	settled := s.completed
	short, err := s.makeBatch()
	if err != nil {
		return short, err
	}
	if s.completed != settled && s.wantsCompletions() {
		short = shortOfNothing // makeBatch has polled completions that settle still has to handle
	}
	if n := s.out.frames; n > 0 {
		if err := s.post(); err != nil {
			return short, err
		}
		s.w.spend(n)
		if short != shortOfFrame {
			return shortOfNothing, nil // what was missing may have arrived in the meantime
		}
	}
	return short, nil
}

// readQueue passes the requests of other goroutines to the parts of the sender that
// carry them out.
func (s *sender) readQueue() error {
	for _, q := range s.queue.take() {
		switch q.kind {
		case sqSlots:
			s.in.slots.Add(q.mem, q.key)
			s.out.signalEvery = signalOneIn(s.o, s.in.slots.Len())
		case sqRecall:
			s.in.fetch()
		case sqLook:
			if err := s.reclaim(); err != nil {
				return err
			}
		default:
			s.requests.add(q)
		}
	}
	return nil
}

// wantsCompletions reports whether the sender needs completions for more than free slots.
func (s *sender) wantsCompletions() bool {
	return s.indications.serialised || s.c.mode == protocol.ModeIndicate ||
		s.requests.busy() || s.in.loans.outstanding()
}

// makeBatch makes a batch of frames and returns what stopped it. It also returns after
// each dropped frame: a series of dropped frames must delay neither the frames already in
// the batch nor the end of the session.
func (s *sender) makeBatch() (shortage, error) {
	for s.out.room() > 0 {
		var frame []byte
		var slot uint32
		var lent *vnet.Lent
		size := 0 // bytes that a transfer of the frame needs; 0: no frame is read yet
		if !s.in.empty() {
			var err error
			if frame, slot, err = s.in.first(); err != nil {
				return shortOfNothing, s.refuse(err)
			}
			if lent = s.in.lent(s.in.next); lent == nil && !s.indications.serialised && s.out.join(frame, slot) {
				s.in.next++
				continue
			}
			size = headroom(s.c.mode) + s.in.firstSize()
		}
		short := s.shortOf(size)
		if short == shortOfSlot {
			if err := s.reclaim(); err != nil {
				return short, err
			}
			short = s.shortOf(size)
		}
		switch short {
		case shortOfNothing:
			// A pool can be taken back at any time, with its credits. The loop then
			// determines the shortage again.
			if g, elem, ok := s.credits.take(size, s.out.together(&s.in, size, s.credits.largest())); ok {
				s.indications.serialised = s.out.add(g, elem, frame, slot, lent)
				if lent != nil {
					s.in.loans.use(slot, lent)
				}
				s.in.next++
			}
			continue
		case shortOfFrame:
			if !s.in.drained {
				if err := s.freeSlots(); err != nil {
					return short, err
				}
				// Read no more frames than there are credits: frames for which the peer has
				// no room stay in the kernel's queue, where the application notices them. Frames
				// for which the batch has no room go into the next one.
				s.in.read(min(s.credits.available(), s.in.slots.Free()))
				continue
			}
		case shortOfCredit:
			s.lack(size)
			if s.fitsNowhere(size) {
				s.count.TxTooLong.Add(1)
				s.in.drop()
				return shortOfNothing, nil
			}
		case shortOfSlot:
			s.lackSlots()
		default:
		}
		return short, nil
	}
	return shortOfNothing, nil
}

// shortage is what a sender needs before it can continue.
type shortage uint8

const (
	shortOfNothing         shortage = iota
	shortOfLeave                    // the sender is paused
	shortOfAcknowledgement          // of an indication that no transfer may overtake
	shortOfCredit
	shortOfSlot // or of room in the send queue: completions free both
	shortOfFrame
)

// shortOf returns what is missing to send the frame that was read first, for which an
// element of size bytes is needed. Without a frame, size is 0, and shortOf returns what
// is missing to read one. It has no side effects.
func (s *sender) shortOf(size int) shortage {
	switch {
	case s.paused.Load():
		return shortOfLeave
	case s.indications.serialised && !s.idle():
		return shortOfAcknowledgement
	case !s.credits.fit(size):
		return shortOfCredit
	case s.room() <= 0 || (s.in.empty() && s.in.short()):
		return shortOfSlot
	case s.in.empty():
		return shortOfFrame
	default:
		return shortOfNothing
	}
}

// lack records that no element of n bytes is available; n is 0 for an element of any
// size. The pool manager asks the peer for another pool if this persists, or if no
// element is large enough.
func (s *sender) lack(n int) {
	if s.fitsNowhere(n) {
		s.short.Store(int64(n))
		s.pools.nudge()
		return
	}
	s.count.TxNoCredit.Add(1)
	if n > 0 || s.short.Load() == 0 {
		s.short.Store(int64(max(n, 1)))
	}
	s.pools.stir()
}

// freeSlots makes sure that enough slots are free to read several frames in one call. It
// polls completions first, and asks for more slots if too few are free. At least one slot
// is free in any case.
func (s *sender) freeSlots() error {
	if s.in.slots.Free() >= s.in.most() {
		return nil
	}
	if err := s.reclaim(); err != nil {
		return err
	}
	if s.in.slots.Free() < s.in.most() && s.in.slots.want() {
		s.pools.nudge()
	}
	return nil
}

// lackSlots records that too few slots are free or that the send queue has no room. If
// slots are missing, the pool manager allocates more.
func (s *sender) lackSlots() {
	s.count.TxNoSlot.Add(1)
	if s.in.short() && s.in.slots.want() {
		s.pools.nudge()
	}
}

// idle reports whether all transfers have completed and all indications are acknowledged.
func (s *sender) idle() bool {
	return len(s.out.wrs) == 0 && s.ring.len() == 0 && s.indications.settled()
}

// room returns how many more transfers can be posted. A transfer counts as posted until it
// has completed and its indication, if it needs one, is sent.
func (s *sender) room() int { return s.sendQueue.room(len(s.indications.pending)) }

// refuse drops the first frame, or returns an error that ends the session.
func (s *sender) refuse(err error) error {
	if err = s.in.refuse(err); err != nil {
		return fmt.Errorf("read a frame from queue %d of the netdevice: %w", s.ch.number, err)
	}
	return nil
}

// post rings the doorbell for the batch.
func (s *sender) post() error {
	s.out.close()
	if n, err := s.ch.qp.PostSend(s.out.wrs); err != nil {
		return fmt.Errorf("post piece %d of a batch of %d on data channel %d: %w", n, len(s.out.wrs), s.ch.number,
			refused(s.ch.qp, err))
	}
	s.out.posted()
	return nil
}

// failure returns the error of the next failed work request. Only the sender's goroutine calls it.
func (s *sender) failure() error { return nextFailure(s.ch.sendCQ, nil, s.comps[:], s.ch.number) }

// reclaim polls completions and releases what the completed work requests held. The
// completion of a work request implies that all those posted before it have completed.
func (s *sender) reclaim() error {
	for {
		n, err := s.ch.sendCQ.Poll(s.comps[:])
		if err != nil {
			return fmt.Errorf("poll the send queue of data channel %d: %w", s.ch.number, err)
		}
		s.w.took(n)
		for i := range s.comps[:n] {
			c := &s.comps[i]
			if c.Status != fabric.StatusSuccess {
				return sendFailure(s.ch.number, c)
			}
			kind, _, _, seq := protocol.WRID(c.ID).Unpack()
			if kind != protocol.WRDataWrite {
				return fmt.Errorf("data channel %d completed a %v", s.ch.number, protocol.WRID(c.ID))
			}
			s.completed = seq
		}
		for s.ring.len() > 0 && int32(s.completed-s.ring.oldest().seq) >= 0 {
			f := *s.ring.oldest()
			s.ring.pop()
			if err := s.complete(&f); err != nil {
				return err
			}
		}
		if n < len(s.comps) {
			s.in.loans.settle()
			return nil
		}
	}
}

// complete releases what a completed work request held.
func (s *sender) complete(f *inFlightEntry) error {
	if f.lent {
		s.in.loans.used(f.slot)
	}
	if f.slot != noSlot {
		s.in.slots.Put(f.slot)
	}
	switch {
	case f.callback:
		return s.requests.completed()
	case f.pool == nil:
	case f.indicate:
		s.indications.add(f)
	default:
		f.pool.Pending--
	}
	return nil
}

// settle does what follows from completions: it indicates transfers and carries out the
// requests of other goroutines.
func (s *sender) settle() error {
	if err := s.reclaim(); err != nil {
		return err
	}
	for s.indications.due() {
		n := min(len(s.indications.pending), protocol.MaxIndications)
		if err := s.control.send(func(dst []byte) []byte {
			return protocol.AppendBufferRDMAIndicate(dst, 0, s.indications.number(n)...)
		}); err != nil {
			return err
		}
		s.indications.forget(n)
		s.count.IndicatesSent.Add(1)
		s.count.TxIndicated.Add(uint64(n))
	}
	if s.idle() {
		s.indications.serialised = false
	}
	return s.requests.carryOut()
}

// missing returns the mask of the waiter for a shortage.
func (s *sender) missing(short shortage) (mask int) {
	if short == shortOfFrame {
		mask |= waitPort
	}
	if short == shortOfSlot || (s.wantsCompletions() && s.ring.len() > 0) {
		mask |= waitCompletion
	}
	return mask
}

// prepare arms the notification and reports whether the sender can sleep. If it can, each
// event that it has to react to wakes it.
func (s *sender) prepare(short shortage) (sleeps bool, err error) {
	s.queue.wake.Clear() // before the check of the queue, so that no wake-up is lost
	s.w.bindThread()
	if s.mask&waitCompletion != 0 {
		if err := s.notification.arm(); err != nil {
			return false, err
		}
	}
	// Completions from before the queue was armed raise no event.
	completed := s.completed
	if err := s.reclaim(); err != nil {
		return false, err
	}
	if s.mask&waitPort != 0 && s.in.paced != nil {
		if d := s.in.paced.ReadHold(); d > 0 {
			return false, s.hold(d)
		}
	}
	s.queue.asleep.Store(true)
	s.waiting.Store(short == shortOfCredit || short == shortOfAcknowledgement || len(s.indications.pending) > 0)
	if s.ready(short) || (s.mask&waitCompletion != 0 && s.completed != completed) {
		s.queue.asleep.Store(false)
		s.waiting.Store(false)
		return false, nil
	}
	if short != shortOfFrame {
		s.in.release() // work reads again before it waits for frames
	}
	return true, nil
}

// hold waits until the port's hold ends. It does not wait for frames, because each
// arriving frame would wake the sender for nothing.
func (s *sender) hold(d time.Duration) error {
	s.count.TxThrottled.Add(1)
	s.queue.asleep.Store(true)
	defer s.queue.asleep.Store(false)
	if s.ready(shortOfFrame) {
		return nil
	}
	err := s.waiters[s.mask&^waitPort].WaitFor(d)
	s.w.woke()
	s.in.drained = false
	return err
}

// ready reports whether there is work for a sender that is short of something. It has no
// side effects. The waiters notice new frames and completions.
func (s *sender) ready(short shortage) bool {
	if s.c.stopped.Load() || s.queue.pending.Load() || s.indications.due() {
		return true
	}
	size := 0
	if !s.in.empty() {
		size = headroom(s.c.mode) + s.in.firstSize()
	}
	return short != shortOfFrame && s.shortOf(size) != short
}

// left returns what the sender, which has ended, has not sent: copies of the frames that it has
// read, in order; how many frames were sent whose elements were not returned; and how many were in
// a batch that could not be posted.
func (s *sender) left() (frames [][]byte, uncertain, lost uint64) {
	for _, g := range *s.remote.Load() {
		for elem := range g.Outstanding() {
			uncertain += uint64(g.Frames[elem])
		}
	}
	return s.in.left(), uncertain, uint64(s.out.frames)
}

// resend makes the sender, which has not begun, send frames before those of its port.
func (s *sender) resend(frames [][]byte) { s.in.unsent = append(s.in.unsent, frames...) }
