package tx

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/epoll"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging/cq"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/control"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/core"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/pools"
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
//	  add        takes a remote element (pools/credits.go) and begins a transfer (transfer.go)
//	finish       writes the headers of a transfer, and seals it (transfer.go)
//	post       rings the doorbell for the batch; its work requests are now in flight (sendqueue.go)
//	reclaim    polls completions and frees slots; some completions make an indication due
//	settle     sends indications (indications.go) and carries out the actions in its
//	           queue: binds and invalidates windows, lets go of retired pools (windows.go)
//	prepare    arms the completion queue and checks once more

// Sender moves frames from a port to the peer. Its fields belong to its goroutine, except
// the queue of actions, the credits and the atomic counters.
type Sender struct {
	*pools.Sending
	c       *core.Session
	o       *Options
	ch      *core.DataQP
	control *control.Sends
	pools   *pools.Manager
	W       *cq.Worker
	pauses  core.Queue[chan<- struct{}] // see Pause, which wakes the sender by the other queue
	actions actions                     // taken from the queue and not yet completed

	in  input
	out batch
	sendQueue
	indications indications

	paused       atomic.Bool     // reads no more frames
	waiter       *epoll.Set      // waits for what mask says, and for the queue
	held         *epoll.Set      // waits until the port's hold ends; nil if the port has none
	frames       epoll.Interest  // waitPort
	completions  epoll.Interest  // waitCompletion
	mask         int             // of waitPort and waitCompletion
	notification cq.Notification // of the send completion queue
	comps        [32]fabric.Completion
}

// New makes the sender of a data channel. It works after Begin and Start.
func New(
	c *core.Session, o *Options, ch *core.DataQP, shared *pools.Channel, control *control.Sends, pools *pools.Manager,
) *Sender {
	s := &Sender{Sending: shared.Sender, c: c, o: o, ch: ch, control: control, pools: pools}
	s.sendQueue = newSendQueue(ch, o, &s.Count)
	s.indications.init(c.Mode, SqDepth(o))
	s.actions = actions{
		sendQueue: &s.sendQueue, indications: &s.indications, pools: pools, receiver: &shared.Receiver.Queue,
	}
	s.in = newInput(s.Slots, o, &s.Count)
	s.out = batch{
		o: o, sends: c.Mode.Sends(), immediate: c.Mode.Immediate(), channel: uint8(ch.Number),
		tail: o.tail(), slots: s.Slots, sequence: &s.Sequence, signalEvery: signalOneIn(o, s.Slots.Len()),
		pieces: maxPieces(o), inline: ch.QP.MaxInline(), queue: &s.sendQueue, count: &s.Count,
		wrs: make([]fabric.SendWR, 0, o.Batch*(1+LentPieces(o))), held: make([]inFlightEntry, 0, o.Batch),
	}
	role := cq.RoleSender
	if o.Poll {
		role = cq.RoleBoth
	}
	s.W = c.Handlers.NewWorker(ch.Number, role, s.Queue.Event)
	return s
}

// Begin makes the waiters. It is called once the port is known. keys are the keys of the
// registered memory from which the port lends frames.
func (s *Sender) Begin(port core.Port, keys *atomic.Pointer[vnet.Keys]) (err error) {
	s.in.port = port
	s.in.paced, _ = port.(core.PacedPort)
	s.in.shared, _ = port.(core.SharedPort)
	s.in.loans = newLoans(s.o, keys, port, s.Queue.Wake)
	s.notification = cq.Notification{CQ: s.ch.SendCQ}
	queue := epoll.Readable(s.Queue.Event.FD())
	s.frames, s.completions = epoll.Readable(port.FD()), epoll.Readable(s.ch.SendCQ.FD())
	if s.waiter, err = s.c.NewWaiter(queue, s.frames, s.completions); err != nil {
		return err
	}
	s.mask = waitPort | waitCompletion
	if err := s.watch(waitPort); err != nil || s.in.paced == nil {
		return err
	}
	s.held, err = s.c.NewWaiter(queue, s.completions)
	return err
}

// The events that a sender waits for, in addition to its queue.
const (
	waitPort = 1 << iota
	waitCompletion
)

// Start starts the sender's goroutine.
func (s *Sender) Start() { s.c.Work(s.W, s.run, s.Failure) }

// watch makes the waiter wait for the events of mask. There is one waiter for all of them: of several,
// each event would reach all that have its descriptor, and wake a thread for each.
func (s *Sender) watch(mask int) (err error) {
	changed := s.mask ^ mask
	s.mask = mask
	if changed&waitPort != 0 {
		err = s.waiter.Watch(s.frames, mask&waitPort != 0)
	}
	if changed&waitCompletion != 0 && err == nil {
		err = s.waiter.Watch(s.completions, mask&waitCompletion != 0)
	}
	return err
}

func (s *Sender) run() error {
	defer s.in.release()
	return s.waiter.Run(s.work)
}

// work repeats step until something is missing. The waiter calls it again after each
// event. ended is true if the session has ended.
func (s *Sender) work() (ended bool, err error) {
	if s.Queue.Asleep.Swap(false) {
		s.Waiting.Store(false)
		s.W.Woke()
	}
	s.in.drained = false
	for !s.c.Stopped.Load() {
		short, err := s.step()
		if err != nil {
			return true, err
		}
		if short == shortOfNothing {
			continue
		}
		if mask := s.missing(short); mask != s.mask {
			if err := s.watch(mask); err != nil {
				return true, err
			}
			s.in.drained = false // frames that have come before are not told
			continue
		}
		if sleeps, err := s.prepare(short); sleeps || err != nil {
			return err != nil, err
		}
	}
	return true, nil
}

// step does all work that is possible now and returns what is missing for more. It never
// waits.
func (s *Sender) step() (shortage, error) {
	woken := s.Queue.Pending.Load()
	if woken {
		s.readQueue()
	}
	if woken || s.wantsCompletions() { // who has woken the sender may look for a failed work request
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
		s.W.Spend(n)
		if short != shortOfFrame {
			return shortOfNothing, nil // what was missing may have arrived in the meantime
		}
	}
	return short, nil
}

// readQueue takes what other goroutines have left: pauses, before the actions that they wait for,
// actions, further slots, and whether the port needs back its loans.
func (s *Sender) readQueue() {
	pauses := s.pauses.Take()
	s.actions.add(s.Queue.Take(), pauses)
	if s.Slots.Grow() {
		s.out.signalEvery = signalOneIn(s.o, s.Slots.Len())
	}
	if s.in.loans.recalled() {
		s.in.fetch()
	}
	if s.pauses.Pending.Load() { // one that came after they were taken, whose wake-up the queue has lost
		s.Queue.Wake()
	}
}

// Pause makes the sender stop reading frames. done, which must have room, gets a value when all that was
// posted has completed, and all that was to be posted by then for other goroutines. Any goroutine may call
// Pause and Resume.
func (s *Sender) Pause(done chan<- struct{}) {
	s.paused.Store(true)
	s.pauses.Put(done)
	s.Queue.Wake()
}

// Resume ends a pause.
func (s *Sender) Resume() {
	s.paused.Store(false)
	s.Queue.Wake()
}

// wantsCompletions reports whether the sender needs completions for more than free slots.
func (s *Sender) wantsCompletions() bool {
	return s.indications.serialised || s.indications.always ||
		s.actions.busy() || s.in.loans.outstanding()
}

// makeBatch makes a batch of frames and returns what stopped it. It also returns after
// each dropped frame: a series of dropped frames must delay neither the frames already in
// the batch nor the end of the session.
func (s *Sender) makeBatch() (shortage, error) {
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
			size = s.out.needed(s.in.firstSize())
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
			if g, elem, ok := s.Credits.Take(size, s.out.together(&s.in, size, s.Credits.Largest())); ok {
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
				s.in.read(min(s.Credits.Available(), s.Slots.Free()))
				continue
			}
		case shortOfCredit:
			s.lack(size)
			if s.FitsNowhere(size) {
				s.Count.TxTooLong.Add(1)
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
func (s *Sender) shortOf(size int) shortage {
	switch {
	case s.paused.Load():
		return shortOfLeave
	case s.indications.serialised && !s.idle():
		return shortOfAcknowledgement
	case !s.Credits.Fit(size):
		return shortOfCredit
	case s.room() <= 0 || (s.in.empty() && s.in.fewFree()):
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
func (s *Sender) lack(n int) {
	if s.FitsNowhere(n) {
		s.Lacking.Store(int64(n))
		s.pools.WakeForNeeds()
		return
	}
	s.Count.TxNoCredit.Add(1)
	if n > 0 || s.Lacking.Load() == 0 {
		s.Lacking.Store(int64(max(n, 1)))
	}
	s.pools.WakeTicks()
}

// freeSlots makes sure that enough slots are free to read several frames in one call. It
// polls completions first, and asks for more slots if too few are free. At least one slot
// is free in any case.
func (s *Sender) freeSlots() error {
	if s.Slots.Free() >= s.in.most() {
		return nil
	}
	if err := s.reclaim(); err != nil {
		return err
	}
	if s.Slots.Free() < s.in.most() && s.Slots.Want() {
		s.pools.WakeForNeeds()
	}
	return nil
}

// lackSlots records that too few slots are free or that the send queue has no room. If
// slots are missing, the pool manager allocates more.
func (s *Sender) lackSlots() {
	s.Count.TxNoSlot.Add(1)
	if s.in.fewFree() && s.Slots.Want() {
		s.pools.WakeForNeeds()
	}
}

// idle reports whether all transfers have completed and all indications are acknowledged.
func (s *Sender) idle() bool {
	return len(s.out.wrs) == 0 && s.ring.len() == 0 && s.indications.settled()
}

// room returns how many more transfers can be posted. A transfer counts as posted until it
// has completed and its indication, if it needs one, is sent.
func (s *Sender) room() int { return s.sendQueue.room(len(s.indications.pending)) }

// refuse drops the first frame, or returns an error that ends the session.
func (s *Sender) refuse(err error) error {
	if err = s.in.refuse(err); err != nil {
		return fmt.Errorf("read a frame from queue %d of the netdevice: %w", s.ch.Number, err)
	}
	return nil
}

// post rings the doorbell for the batch.
func (s *Sender) post() error {
	s.out.close()
	if n, err := s.ch.QP.PostSend(s.out.wrs); err != nil {
		return fmt.Errorf("post piece %d of a batch of %d on data channel %d: %w", n, len(s.out.wrs), s.ch.Number,
			fabric.Refused(s.ch.QP, err))
	}
	s.out.posted()
	return nil
}

// Failure returns the error of the next failed work request. Only the sender's goroutine calls it.
func (s *Sender) Failure() error { return core.NextFailure(s.ch.SendCQ, nil, s.comps[:], s.ch.Number) }

// reclaim polls completions and releases what the completed work requests held. The
// completion of a work request implies that all those posted before it have completed.
func (s *Sender) reclaim() error {
	for {
		n, err := s.ch.SendCQ.Poll(s.comps[:])
		if err != nil {
			return fmt.Errorf("poll the send queue of data channel %d: %w", s.ch.Number, err)
		}
		s.W.Took(n)
		for i := range s.comps[:n] {
			c := &s.comps[i]
			if c.Status != fabric.StatusSuccess {
				return core.SendFailure(s.ch.Number, c)
			}
			kind, _, _, seq := protocol.WRID(c.ID).Unpack()
			if kind != protocol.WRDataWrite {
				return fmt.Errorf("data channel %d completed a %v", s.ch.Number, protocol.WRID(c.ID))
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
func (s *Sender) complete(f *inFlightEntry) error {
	if f.lent {
		s.in.loans.used(f.slot)
	}
	if f.slot != noSlot {
		s.Slots.Put(f.slot)
	}
	switch {
	case f.action:
		return s.actions.finished()
	case f.pool == nil:
	case f.indicate:
		s.indications.add(f)
	default:
		f.pool.Done()
	}
	return nil
}

// settle does what follows from completions: it indicates transfers and carries out the
// actions that others have left.
func (s *Sender) settle() error {
	if err := s.reclaim(); err != nil {
		return err
	}
	for s.indications.due() {
		n := min(len(s.indications.pending), protocol.MaxIndications)
		if err := s.control.Send(func(dst []byte) []byte {
			return protocol.AppendBufferRDMAIndicate(dst, 0, s.indications.number(n)...)
		}); err != nil {
			return err
		}
		s.indications.forget(n)
		s.Count.IndicatesSent.Add(1)
		s.Count.TxIndicated.Add(uint64(n))
	}
	if s.idle() {
		s.indications.serialised = false
	}
	return s.actions.carryOut()
}

// missing returns the mask of the events that end a shortage.
func (s *Sender) missing(short shortage) (mask int) {
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
func (s *Sender) prepare(short shortage) (sleeps bool, err error) {
	s.Queue.Event.Clear() // before the check of the queue, so that no wake-up is lost
	s.W.BindThread()
	if s.mask&waitCompletion != 0 {
		if err := s.notification.Arm(); err != nil {
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
	s.Queue.Asleep.Store(true)
	s.Waiting.Store(short == shortOfCredit || short == shortOfAcknowledgement || len(s.indications.pending) > 0)
	if s.ready(short) || (s.mask&waitCompletion != 0 && s.completed != completed) {
		s.Queue.Asleep.Store(false)
		s.Waiting.Store(false)
		return false, nil
	}
	if short != shortOfFrame {
		s.in.release() // work reads again before it waits for frames
	}
	return true, nil
}

// hold waits until the port's hold ends. It does not wait for frames, because each
// arriving frame would wake the sender for nothing.
func (s *Sender) hold(d time.Duration) error {
	s.Count.TxThrottled.Add(1)
	s.Queue.Asleep.Store(true)
	defer s.Queue.Asleep.Store(false)
	if s.ready(shortOfFrame) {
		return nil
	}
	err := s.held.Watch(s.completions, s.mask&waitCompletion != 0)
	if err == nil {
		err = s.held.WaitFor(d)
	}
	s.W.Woke()
	s.in.drained = false
	return err
}

// ready reports whether there is work for a sender that is short of something. It has no
// side effects. The waiters notice new frames and completions.
func (s *Sender) ready(short shortage) bool {
	if s.c.Stopped.Load() || s.Queue.Pending.Load() || s.indications.due() {
		return true
	}
	size := 0
	if !s.in.empty() {
		size = s.out.needed(s.in.firstSize())
	}
	return short != shortOfFrame && s.shortOf(size) != short
}

// Acknowledge records that the peer has returned an element. The control handler calls it.
func (s *Sender) Acknowledge(g *bufpool.Remote, elem uint16) { s.indications.acknowledge(g, elem) }

// Poll does all work that is possible now, and reports whether anything was posted. With Options.Poll it is
// called instead of Start, and ReclaimIdle now and then while there is nothing to do.
func (s *Sender) Poll() (posted bool, err error) {
	s.in.drained = false
	before := s.posted
	_, err = s.step()
	return s.posted != before, err
}

// ReclaimIdle frees slots.
func (s *Sender) ReclaimIdle() error {
	s.W.BindThread()
	return s.reclaim()
}

// Release lets others read a shared port. The goroutine that reads calls it at its end.
func (s *Sender) Release() { s.in.release() }

// Leave makes the port stop waking the sender, whose goroutine has returned.
func (s *Sender) Leave() { s.in.loans.leave() }

// Close returns all loans. The queue pairs are closed.
func (s *Sender) Close() { s.in.close() }

// Left returns what the sender, which has ended, has not sent: copies of the frames that it has
// read, in order; how many frames were sent whose elements were not returned; and how many were in
// a batch that could not be posted.
func (s *Sender) Left() (frames [][]byte, uncertain, lost uint64) {
	for _, g := range s.Pools() {
		uncertain += g.Uncertain()
	}
	return s.in.left(), uncertain, uint64(s.out.frames)
}

// Resend makes the sender, which has not begun, send frames before those of its port.
func (s *Sender) Resend(frames [][]byte) { s.in.unsent = append(s.in.unsent, frames...) }
