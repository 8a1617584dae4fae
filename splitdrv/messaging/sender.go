package messaging

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/vnet"
)

// sender moves frames from a port to the peer, in a goroutine of its own.
type sender struct {
	c       *Conn
	ch      *channel
	w       *worker
	port    Port
	batches BatchPort // port, if it is one
	paced   PacedPort // port, if it is one
	slots   *bufpool.Slots
	region  fabric.Region
	mail    mailbox[errand]
	hungry  atomic.Bool // sleeps for credits, or for the acknowledgement of an indication

	grants atomic.Pointer[[]*bufpool.Remote] // smallest elements first; replaced as a whole

	// Frames that were read and are not in the batch yet: reads[next:have], and
	// the slots they lie in.
	reads     []vnet.ReadOp
	readSlots []uint32
	next      int
	have      int
	drained   bool // the port had no more; sleep looks again
	ahead     int  // how many to read in one go: twice as many as last time

	wrs    []fabric.SendWR // the batch: one record for each frame
	batch  []flight        // what they are
	bytes  int             // in the batch
	last   int             // where in the batch the last transfer begins
	open   transfer        // the last transfer, which others may still join
	pieces int             // frames in a transfer at most

	// Sequence numbers of work requests, cumulative and compared by difference.
	posted    uint32 // or gathered to be
	completed uint32
	signaled  uint32 // the last one that asked for a completion
	silent    int    // frames since then
	flights   flights

	// Of transfers that are indicated on the control channel.
	owed      []protocol.Indication // completed and not indicated yet, oldest first
	owedPools []*bufpool.Remote     // theirs
	indicated uint64                // messages, cumulative
	acked     atomic.Uint64         // of those; the control handler's
	alone     bool                  // in mode imm: one is on its way, and nothing may overtake it

	sequence  atomic.Uint64 // send modes: the sequence number of the next message
	releasing []errand      // pools that are being put out of use, and a pause
	errands   []errand      // what is to be posted about windows
	landing   []landing     // what follows when that has completed, in order
	paused    atomic.Bool   // takes no more frames
	inherited [][]byte      // frames that come before those of the port

	comps   [32]fabric.Completion
	waiters [4]*waiter // by what for: see waitPort
	notice  notice     // of the send queue's completions
	dream   dream
	short   atomic.Int64
	count   txCounters
}

func newSender(c *Conn, ch *channel, slots *bufpool.Slots, region fabric.Region) (*sender, error) {
	s := &sender{
		c: c, ch: ch, slots: slots, region: region,
		reads:     make([]vnet.ReadOp, c.cfg.Batch),
		readSlots: make([]uint32, c.cfg.Batch),
		wrs:       make([]fabric.SendWR, 0, c.cfg.Batch),
		batch:     make([]flight, 0, c.cfg.Batch),
		pieces:    maxPieces(&c.cfg),
		ahead:     1,
		flights:   newFlights(sqDepth(&c.cfg) + c.cfg.SendSlots + 1),
	}
	if !c.cfg.Mode.Sends() {
		s.owed = make([]protocol.Indication, 0, sqDepth(&c.cfg))
		s.owedPools = make([]*bufpool.Remote, 0, sqDepth(&c.cfg))
	}
	s.grants.Store(new([]*bufpool.Remote))
	var err error
	if s.mail.wake, err = c.newEvent(); err != nil {
		return nil, err
	}
	role := RoleSender
	if c.cfg.Poll {
		role = RoleBoth
	}
	s.w = c.handlers.employ(ch.number, role, s.mail.wake)
	return s, nil
}

// want is what a sender that cannot go on is waiting for.
type want uint8

const (
	wantNothing want = iota
	wantFrame
	wantCredit
	wantCompletion
	wantMail // that ends a pause
)

// run is the sender's goroutine.
func (s *sender) run() error {
	for !s.c.stopped.Load() {
		s.w.turn()
		w, err := s.step()
		if err != nil {
			return err
		}
		if w != wantNothing {
			if err := s.sleep(w); err != nil {
				return err
			}
		}
	}
	return nil
}

// step does what there is to do, and says what the sender is waiting for if
// there is nothing more. It never waits.
func (s *sender) step() (want, error) {
	if s.mail.pending.Load() {
		s.sort(s.mail.take())
	}
	if s.attentive() {
		if err := s.settle(); err != nil {
			return wantNothing, err
		}
	}
	if s.paused.Load() {
		return wantMail, nil
	}
	settled := s.completed
	w, err := s.fill()
	if err != nil {
		return wantNothing, err
	}
	if s.completed != settled && s.attentive() {
		w = wantNothing // settle waits for what fill has found, and nobody will find it again
	}
	if len(s.wrs) > 0 {
		// What it waits for may have come meanwhile, but for frames: sleep will
		// see those.
		n := len(s.wrs)
		if err := s.post(); err != nil {
			return wantNothing, err
		}
		s.w.spend(n)
		if w != wantFrame {
			return wantNothing, nil
		}
	}
	return w, nil
}

// attentive reports whether completions are more to the sender than free slots.
func (s *sender) attentive() bool {
	return s.alone || s.c.cfg.Mode == protocol.ModeIndicate || len(s.releasing) > 0 || len(s.errands)+len(s.landing) > 0
}

// fill gathers a batch of frames and says what stopped it. It returns after
// each frame that is dropped, so that a run of them neither keeps those before
// it from being posted nor the session from ending.
func (s *sender) fill() (want, error) {
	for len(s.wrs) < cap(s.wrs) && s.bytes < s.c.cfg.BatchBytes {
		if s.alone {
			return wantCredit, nil
		}
		if s.next == s.have {
			if s.drained {
				return wantFrame, nil
			}
			if w, err := s.read(); w != wantNothing || err != nil {
				return w, err
			}
		}
		if err := s.reads[s.next].Err; err != nil {
			return wantNothing, s.refuse(err)
		}
		frame := s.reads[s.next].Frame
		if s.join(frame) {
			continue
		}
		if s.room() <= 0 {
			if err := s.reclaim(); err != nil {
				return wantNothing, err
			}
			if s.room() <= 0 {
				s.count.noSlot.Add(1)
				return wantCompletion, nil
			}
		}
		size := s.headroom() + len(frame)
		g, elem, ok := s.credit(size, s.together(size))
		if !ok {
			s.lack(size)
			if s.fitsNowhere(size) {
				s.count.tooLong.Add(1)
				s.drop()
				return wantNothing, nil
			}
			return wantCredit, nil
		}
		s.add(g, elem, frame)
	}
	return wantNothing, nil
}

// room is how many more transfers can be posted, those included that have to
// be indicated.
func (s *sender) room() int {
	return sqDepth(&s.c.cfg) - int(s.posted-s.completed) - len(s.owed)
}

// headroom is what a transfer needs in the element besides the frame.
func (s *sender) headroom() int {
	if s.c.cfg.Mode.Sends() {
		return protocol.SendDataOverhead
	}
	return 0
}

// slotHeadroom is what is left free before a frame in a slot: for a SendData
// and for a pack of which the frame is the first one.
const slotHeadroom = protocol.SendDataOverhead + protocol.PackHeaderSize + protocol.PackRecordSize

// read takes frames from the port into slots: no more than there are credits,
// so that what the peer has no room for stays where its sender sees it waiting.
func (s *sender) read() (want, error) {
	s.drained = false
	credits := s.credits()
	if credits == 0 {
		s.lack(0)
		return wantCredit, nil
	}
	if s.slots.Free() == 0 {
		if err := s.reclaim(); err != nil {
			return wantNothing, err
		}
		if s.slots.Free() == 0 {
			s.count.noSlot.Add(1)
			return wantCompletion, nil
		}
	}
	most := min(credits, s.slots.Free(), cap(s.wrs)-len(s.wrs))
	if len(s.inherited) > 0 {
		return s.inherit(min(most, len(s.inherited))), nil
	}
	ops := s.reads[:min(most, s.ahead)]
	for i := range ops {
		slot, _ := s.slots.Take() // as many as are free
		s.readSlots[i] = slot
		ops[i].Slot = s.slots.Bytes(slot)[slotHeadroom:]
	}
	n := s.readFrames(ops)
	s.ahead = 2 * n
	w := wantNothing
	if s.drained = ops[n-1].Err == unix.EAGAIN; s.drained {
		n--
		if n == 0 {
			w = wantFrame
		}
	}
	s.judge(ops[:n])
	for i := len(ops) - 1; i >= n; i-- { // so that the next one is the same again
		s.slots.Put(s.readSlots[i])
	}
	s.next, s.have = 0, n
	return w, nil
}

// judge finds the frames of the netdevice's that the peer would not take. Whoever
// is behind the netdevice can make it have any bytes with any header; the peer
// may end the session for some of them.
func (s *sender) judge(ops []vnet.ReadOp) {
	for i := range ops {
		op := &ops[i]
		if op.Err != nil {
			continue
		}
		n := len(op.Frame)
		if op.Frame, op.Err = vnet.Outgoing(op.Frame); op.Err != nil {
			op.Frame = nil
			if op.Err != vnet.ErrTooLong {
				op.Err = errMalformed
			}
		} else if len(op.Frame) != n {
			s.count.padded.Add(1)
		}
	}
}

// readFrames is ReadFrames of the port, which may not have it.
func (s *sender) readFrames(ops []vnet.ReadOp) int {
	if s.batches != nil {
		return s.batches.ReadFrames(ops)
	}
	for i := range ops {
		if ops[i].Frame, ops[i].Err = s.port.ReadFrame(ops[i].Slot); ops[i].Err != nil {
			return i + 1
		}
	}
	return len(ops)
}

// errMalformed stands for a frame that the netdevice had and no peer would take.
var errMalformed = errors.New("malformed frame")

// refuse handles what the port has instead of the next frame: a frame that it
// has dropped, or an error that ends the session.
func (s *sender) refuse(err error) error {
	s.drop()
	switch err {
	case vnet.ErrTooLong:
		s.count.tooLong.Add(1)
	case vnet.ErrInvalid:
		s.count.invalid.Add(1)
	case errMalformed:
		s.count.malformed.Add(1)
	default:
		return fmt.Errorf("read a frame from queue %d of the netdevice: %w", s.ch.number, err)
	}
	return nil
}

// drop forgets the frame that was read first.
func (s *sender) drop() {
	s.slots.Put(s.readSlots[s.next])
	s.next++
}

// credits is how many elements there are to write to.
func (s *sender) credits() int {
	n := 0
	for _, g := range *s.grants.Load() {
		n += g.Credits()
	}
	return n
}

// credit takes an element for a transfer of at least n bytes: of the smallest
// pool that holds those wanted, or of the largest that has one.
func (s *sender) credit(n, wanted int) (*bufpool.Remote, uint16, bool) {
	var best *bufpool.Remote
	for _, g := range *s.grants.Load() {
		if g.ElementSize() < n || g.Empty() {
			continue
		}
		best = g
		if g.ElementSize() >= wanted {
			break
		}
	}
	if best == nil {
		return nil, 0, false
	}
	elem, ok := best.Take()
	return best, elem, ok
}

// fitsNowhere reports whether no pool of the peer's has elements of n bytes.
func (s *sender) fitsNowhere(n int) bool {
	grants := *s.grants.Load()
	return len(grants) > 0 && grants[len(grants)-1].ElementSize() < n
}

// lack records that an element of n bytes, or any, is not to be had. The pool manager
// asks the peer for more if that goes on, or if no element fits.
func (s *sender) lack(n int) {
	if s.fitsNowhere(n) {
		s.short.Store(int64(n))
		s.c.pools.nudge()
		return
	}
	s.count.noCredit.Add(1)
	if n > 0 || s.short.Load() == 0 {
		s.short.Store(int64(max(n, 1)))
	}
}

// begin makes the waiters, now that the port is known.
func (s *sender) begin(port Port) (err error) {
	s.port = port
	s.batches, _ = port.(BatchPort)
	s.paced, _ = port.(PacedPort)
	s.notice = notice{cq: s.ch.sendCQ}
	for w := range s.waiters {
		interests := []interest{{s.mail.wake.fd, unix.EPOLLIN}}
		if w&waitPort != 0 {
			interests = append(interests, interest{s.port.FD(), unix.EPOLLIN})
		}
		if w&waitCompletion != 0 {
			interests = append(interests, interest{s.ch.sendCQ.FD(), unix.EPOLLIN})
		}
		if s.waiters[w], err = s.c.newWaiter(s.awake, interests...); err != nil {
			return err
		}
	}
	return nil
}

// What a sender's waiter waits for, besides mail.
const (
	waitPort = 1 << iota
	waitCompletion
)

// sleep waits for what the sender wants, for what else it has to react to, or
// for the end of the session.
func (s *sender) sleep(w want) error {
	mask := 0
	if w == wantFrame {
		mask |= waitPort
	}
	if w == wantCompletion || (s.attentive() && s.flights.len() > 0) {
		mask |= waitCompletion
	}
	s.mail.asleep.Store(true)
	defer s.mail.asleep.Store(false)
	if w == wantCredit || len(s.owed) > 0 || s.alone {
		s.hungry.Store(true)
		defer s.hungry.Store(false)
	}
	if mask&waitCompletion != 0 {
		if err := s.notice.arm(); err != nil {
			return err
		}
	}
	s.dream = dream{want: w, mask: mask, completed: s.completed}
	if w == wantFrame && s.paced != nil {
		s.mail.wake.clear() // what is raised from now on may be about the hold
		if d := s.paced.ReadHold(); d > 0 {
			return s.sleepHeld(d)
		}
	}
	if err := s.waiters[mask].wait(); err != nil {
		return err
	}
	if s.dream.looks > 1 {
		s.w.woke()
		// A frame that has just come is hardly the first of many.
		s.drained = s.next < s.have
	}
	return s.dream.err
}

// dream is what a sleeping sender waits for.
type dream struct {
	want      want
	held      bool // by the port, and not to be read before something has happened
	mask      int
	completed uint32 // when it went to sleep
	looks     int
	err       error
}

// awake looks whether the sender has something to do. Freeing slots costs
// nothing, as there is nothing else to do yet; a frame that has come is read.
func (s *sender) awake() bool {
	d := &s.dream
	d.looks++
	raised := s.mail.wake.clear()
	if s.c.stopped.Load() || s.w.called() {
		return true
	}
	if d.err = s.reclaim(); d.err != nil {
		return true
	}
	if d.mask&waitCompletion != 0 && (s.completed != d.completed || d.looks > 1) { // see notice
		return true
	}
	if s.mail.pending.Load() || s.creditCame(d.want) {
		return true
	}
	if d.held {
		return raised || d.looks > 1
	}
	if d.want != wantFrame {
		return false
	}
	w, err := s.read()
	d.err = err
	return w != wantFrame || err != nil || (s.paced != nil && s.paced.ReadHold() > 0)
}

// creditCame reports whether a credit that the sender waits for has come: any,
// or one for the held frame; or the acknowledgement of an indication.
func (s *sender) creditCame(w want) bool {
	if len(s.owed) > 0 && s.unacknowledged() < s.window() {
		return true
	}
	if s.alone {
		return len(s.owed) == 0 && s.flights.len() == 0 && s.unacknowledged() == 0
	}
	if w != wantCredit {
		return false
	}
	need := 0
	if s.next < s.have {
		need = s.headroom() + len(s.reads[s.next].Frame)
	}
	for _, g := range *s.grants.Load() {
		if g.ElementSize() >= need && !g.Empty() {
			return true
		}
	}
	return false
}

// credited tells a sleeping sender that credits, or acknowledgements, came.
// Called by the control handler.
func (s *sender) credited() {
	if s.hungry.Load() {
		s.mail.wake.set()
	}
}

// grant adds a pool to those that the sender uses. Called with the pools' lock held.
func (s *sender) grant(r *bufpool.Remote) {
	grants := append(slices.Clone(*s.grants.Load()), r)
	slices.SortStableFunc(grants, func(a, b *bufpool.Remote) int { return cmp.Compare(a.ElementSize(), b.ElementSize()) })
	s.grants.Store(&grants)
	s.credited()
}

// revoke takes a pool from those that the sender uses. It may be using it at
// this very moment. Called with the pools' lock held.
func (s *sender) revoke(r *bufpool.Remote) {
	grants := slices.DeleteFunc(slices.Clone(*s.grants.Load()), func(o *bufpool.Remote) bool { return o == r })
	s.grants.Store(&grants)
}
