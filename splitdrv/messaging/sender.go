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

// The transmit path: from a port to the peer. One goroutine for each data channel
// goes through these stages, of which the functions follow here in this order;
// what becomes of a frame within a batch is in transfer.go.
//
//	run        works, until the session ends, asleep while nothing can be sent
//	work       step after step; when something is missing, prepare to sleep until it comes
//	step       one round through all that follows, without ever waiting
//	makeBatch  makes a batch:
//	  shortOf    may another transfer be sent, and what is missing if not?
//	  read       takes frames from the port into slots, and drops what no peer takes (input.go)
//	  join       adds a frame to the last transfer of the batch (transfer.go), or else
//	  add        takes an element of the peer's (credits.go) and begins a transfer (transfer.go)
//	post       rings the doorbell for the batch: its work requests are in flight (inflight.go)
//	reclaim    polls completions: slots are free again, or an indication is due
//	settle     sends indications (indications.go), and carries out what others have
//	           requested: windows are bound and invalidated, and pools let go that are out of
//	           use (windows.go)
//	prepare    arms, and looks once more

// sender moves frames from a port to the peer. All it has is its goroutine's, but
// for what others leave in its queue, the credits, and atomic counters.
type sender struct {
	c        *shared
	ch       *dataQP
	control  *controlSends
	pools    *poolManager
	w        *worker
	queue    queue[sqRequest] // what others have for it to do besides frames
	requests sqRequests       // of these, what is not done yet

	in  input
	out batch
	sendQueue
	indications indications
	credits

	paused       atomic.Bool   // takes no more frames
	waiters      [4]*epoll.Set // by what for: see waitPort
	mask         int           // the one that is waited with
	notification notification  // of the send queue's completions
	comps        [32]fabric.Completion
	count        txCounters
}

func newSender(
	c *shared, ch *dataQP, slots *sendSlots, control *controlSends, pools *poolManager,
) (*sender, error) {
	s := &sender{c: c, ch: ch, control: control, pools: pools}
	s.sendQueue = newSendQueue(ch, &c.cfg, &s.count)
	s.indications.init(&c.cfg)
	s.requests = sqRequests{sendQueue: &s.sendQueue, indications: &s.indications, pools: pools}
	s.in = newInput(slots, c.cfg.Batch, &s.count, c.cfg.path(ch.number))
	s.out = batch{
		cfg: &c.cfg, channel: uint8(ch.number), slots: slots, signalEvery: signalOneIn(&c.cfg, slots.Len()),
		pieces: maxPieces(&c.cfg), requests: &s.sendQueue, count: &s.count,
		wrs: make([]fabric.SendWR, 0, c.cfg.Batch*(1+lentPieces(&c.cfg))), held: make([]inFlightEntry, 0, c.cfg.Batch),
	}
	s.remote.Store(new([]*bufpool.Remote))
	var err error
	if s.queue.wake, err = c.newEvent(); err != nil {
		return nil, err
	}
	role := RoleSender
	if c.cfg.Poll {
		role = RoleBoth
	}
	s.credits.wake = s.queue.wake
	s.w = c.handlers.newWorker(ch.number, role, s.queue.wake)
	return s, nil
}

// begin makes the waiters, now that the port is known, and the keys of the memory that it lends.
func (s *sender) begin(port Port, keys *atomic.Pointer[vnet.Keys]) (err error) {
	s.in.port = port
	s.in.paced, _ = port.(PacedPort)
	s.in.shared, _ = port.(SharedPort)
	s.in.loans = newLoans(&s.c.cfg, keys, port, func() { s.queue.put(sqRequest{kind: sqRecall}) })
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

// What a sender's waiter waits for, besides its queue.
const (
	waitPort = 1 << iota
	waitCompletion
)

// run is the sender's goroutine.
func (s *sender) run() error {
	defer s.in.release()
	work := s.work // once: it is allocated
	for !s.c.stopped.Load() {
		if err := s.waiters[s.mask].Run(work); err != nil {
			return err
		}
	}
	return nil
}

// work goes on until something is missing. It is called again when something has
// happened meanwhile, unless it reports that something else is to be waited for
// than before, or that the session has ended.
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

// step does what there is to do, and says what is missing if there is nothing
// more. It never waits.
func (s *sender) step() (shortage, error) {
	if s.queue.pending.Load() {
		s.readQueue()
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
		short = shortOfNothing // settle waits for what makeBatch has found, and nobody will find it again
	}
	if n := s.out.frames; n > 0 {
		if err := s.post(); err != nil {
			return short, err
		}
		s.w.spend(n)
		if short != shortOfFrame {
			return shortOfNothing, nil // it may have come meanwhile
		}
	}
	return short, nil
}

// readQueue puts what others want where it belongs.
func (s *sender) readQueue() {
	for _, q := range s.queue.take() {
		switch q.kind {
		case sqSlots:
			s.in.slots.Add(q.mem, q.key)
			s.out.signalEvery = signalOneIn(&s.c.cfg, s.in.slots.Len())
		case sqRecall:
			s.in.fetch()
		default:
			s.requests.add(q)
		}
	}
}

// wantsCompletions reports whether completions are more to the sender than free slots.
func (s *sender) wantsCompletions() bool {
	return s.indications.serialised || s.c.cfg.Mode == protocol.ModeIndicate ||
		s.requests.busy() || s.in.loans.outstanding()
}

// makeBatch makes a batch of frames and says what stopped it. It returns after each
// frame that is dropped, so that a run of them neither keeps those before it from
// being posted nor the session from ending.
func (s *sender) makeBatch() (shortage, error) {
	for s.out.room() > 0 {
		var frame []byte
		var slot uint32
		var lent *vnet.Lent
		size := 0 // what a transfer of the frame needs; any is enough to read one
		if !s.in.empty() {
			var err error
			if frame, slot, err = s.in.first(); err != nil {
				return shortOfNothing, s.refuse(err)
			}
			if lent = s.in.lent(s.in.next); lent == nil && !s.indications.serialised && s.out.join(frame, slot) {
				s.in.next++
				continue
			}
			size = s.c.cfg.headroom() + s.in.firstSize()
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
			// Credits can go meanwhile, with their pool: then it is asked again.
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
				// No more than there are credits, so that what the peer has no room for
				// stays where its sender sees it waiting. What the batch has no room for is
				// the next one's.
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

// shortage is what a sender lacks.
type shortage uint8

const (
	shortOfNothing         shortage = iota
	shortOfLeave                    // it is paused
	shortOfAcknowledgement          // of an indication that nothing may overtake
	shortOfCredit
	shortOfSlot // or of room in the send queue: completions bring both
	shortOfFrame
)

// shortOf says what is missing to send a transfer that needs an element of size
// bytes, the frame that was read first; or, of any size, to read one. It changes
// nothing.
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

// lack records that an element of n bytes, or any, is not to be had. The pool
// manager asks the peer for more if that goes on, or if no element fits.
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

// freeSlots has as many free slots as are wanted to read, if completions have freed them,
// and otherwise asks for more. There are enough for a few frames all the same.
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

// lackSlots records that there are too few free slots, or no room in the send queue, and has
// the pool manager make more slots if that is what is lacking.
func (s *sender) lackSlots() {
	s.count.TxNoSlot.Add(1)
	if s.in.short() && s.in.slots.want() {
		s.pools.nudge()
	}
}

// idle reports whether everything has arrived that was sent, and is acknowledged if
// it was indicated.
func (s *sender) idle() bool {
	return len(s.out.wrs) == 0 && s.ring.len() == 0 && s.indications.settled()
}

// room is how many more transfers can be posted, those included that have to
// be indicated.
func (s *sender) room() int { return s.sendQueue.room(len(s.indications.pending)) }

// refuse drops the first frame, or ends the session.
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
		return fmt.Errorf("post piece %d of a batch of %d on data channel %d: %w", n, len(s.out.wrs), s.ch.number, err)
	}
	s.out.posted()
	return nil
}

// reclaim polls for completions and frees what they held. The completion of a
// work request completes all that were posted before it.
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

// complete frees what a completed work request held.
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

// settle does what completions ask for: it indicates transfers, and carries out what
// others have requested.
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

// missing is what a waiter has to wait for.
func (s *sender) missing(short shortage) (mask int) {
	if short == shortOfFrame {
		mask |= waitPort
	}
	if short == shortOfSlot || (s.wantsCompletions() && s.ring.len() > 0) {
		mask |= waitCompletion
	}
	return mask
}

// prepare reports whether the sender can sleep until what is missing has come, or
// what else it has to react to: then nothing of that is missed.
func (s *sender) prepare(short shortage) (sleeps bool, err error) {
	s.queue.wake.Clear() // before the look at what it is raised for
	s.w.bindThread()
	if s.mask&waitCompletion != 0 {
		if err := s.notification.arm(); err != nil {
			return false, err
		}
	}
	// What had completed before the queue was armed raises no event.
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

// hold waits for the end of the port's hold, and not for frames: each one that came
// would wake the sender in vain.
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

// ready reports whether there is something to do for a sender that lacks
// something. It changes nothing. Of frames and completions the waiters know.
func (s *sender) ready(short shortage) bool {
	if s.c.stopped.Load() || s.queue.pending.Load() || s.indications.due() {
		return true
	}
	size := 0
	if !s.in.empty() {
		size = s.c.cfg.headroom() + s.in.firstSize()
	}
	return short != shortOfFrame && s.shortOf(size) != short
}
