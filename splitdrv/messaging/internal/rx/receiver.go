package rx

import (
	"errors"
	"fmt"
	"net"

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

// The receive path, from the peer to a port. Each data channel has one goroutine that goes
// through these stages. The functions in this file and in delivery.go are in the same
// order.
//
//	run       repeats work until the session ends, and sleeps while there is nothing to do
//	work      repeats step; if there is nothing to do, arms the completion queue and tries once more
//	step      handles one batch of completions, or the events in its queue
//	Poll      polls the completions
//	Deliver   determines pool, element and length, in the way of the transfer mode (numbering.go)
//	consume   checks that the element was lent and not yet written; an element of a one-touch
//	          pool is set aside until its window is invalidated (adopted.go)
//	open      opens a sealed transfer (opening.go)
//	unpack    checks the frames (delivery.go)
//	flush     writes the frames to the port and frees the elements
//	Renew     posts the receives again
//	GiveBack  returns elements when enough are free

// Receiver moves frames from the peer to a port. Its fields belong to its goroutine, except
// the queue of events and the atomic values. It has a method for each stage, each mode and
// each event; parts with a state of their own are separate structs.
type Receiver struct {
	*pools.Receiving
	c            *core.Session
	o            Options
	ch           *core.DataQP
	control      *control.Sends
	manager      *pools.Manager
	W            *cq.Worker
	idle         *epoll.Set // waits for completions, or events
	notification cq.Notification
	comps        [64]fabric.Completion
	recvs        [64]fabric.RecvWR

	adopted
	numbering
	spare    int        // posted receives beyond the number of elements
	renewed  int        // receives of the current batch that are already posted again
	consumed []consumed // elements that the next flush frees
	oneTouch revocations
	returns  bufpool.Returns
	opening  opening
	out      delivery
}

// consumed is an element that the peer has written.
type consumed struct {
	pool *bufpool.Local
	elem int
}

// New makes the receiver of a data channel. w is its worker with Options.Poll. It works after
// Begin and Start.
func New(
	c *core.Session, o Options, ch *core.DataQP, w *cq.Worker, shared *pools.Channel, control *control.Sends,
	pools *pools.Manager,
) *Receiver {
	r := &Receiver{Receiving: shared.Receiver, c: c, o: o, ch: ch, control: control, manager: pools}
	r.oneTouch.sender, r.oneTouch.count = &shared.Sender.Queue, &r.Count
	r.returns = bufpool.Returns{Mode: c.Mode, Room: protocol.MaxControlSize - protocol.HeaderSize}
	r.adopted.init(ch.Number, c.FirstRef(ch.Number), c.MaxPools)
	r.numbering = numbering{channel: ch.Number, lossy: c.Mode.Lossy(), count: &r.Count}
	r.consumed = make([]consumed, 0, len(r.comps))
	for i := range r.recvs {
		r.recvs[i].ID = uint64(protocol.PackWRID(protocol.WRDataRecv, uint8(ch.Number), 0, 0))
	}
	if r.W = w; !o.Poll { // with Poll, sender and receiver share a worker
		r.W = c.Handlers.NewWorker(ch.Number, cq.RoleReceiver, r.Queue.Event)
		r.W.Polling.Moved = func() (frames, bytes uint64) { return r.Count.RxFrames.Load(), r.Count.RxBytes.Load() }
	}
	r.out = delivery{
		c: c, w: r.W, channel: ch.Number, wake: r.Queue.Event, count: &r.Count, path: o.Path, noPack: o.NoPack,
		writes: make([]vnet.WriteOp, 0, protocol.MaxPackFrames),
	}
	r.opening = newOpening(o.Opener, &r.out)
	return r
}

// Begin makes the waiters. It is called once the port is known.
func (r *Receiver) Begin(port core.Port) (err error) {
	r.notification = cq.Notification{CQ: r.ch.RecvCQ, Solicited: true}
	if r.idle, err = r.c.NewWaiter(epoll.Readable(r.ch.RecvCQ.FD()), epoll.Readable(r.Queue.Event.FD())); err != nil {
		return err
	}
	return r.out.begin(port)
}

// Start starts the receiver's goroutine.
func (r *Receiver) Start() { r.c.Work(r.W, r.run, r.Failure) }

func (r *Receiver) run() error { return r.Finish(r.idle.Run(r.work)) }

// work repeats step until there is nothing to do or the session has ended. The waiter
// calls it again after each event.
func (r *Receiver) work() (ended bool, err error) {
	if r.Queue.Asleep.Swap(false) {
		r.Count.RxWakeups.Add(1)
		r.W.Woke()
	}
	for {
		if ended, err = r.W.UntilIdle(&r.notification, &r.c.Stopped, r.step); ended {
			return ended, err
		}
		r.Queue.Asleep.Store(true)
		// A goroutine that put something into the queue before asleep was set has not
		// raised the event.
		if !r.Queue.Pending.Load() {
			return false, nil
		}
		r.Queue.Asleep.Store(false)
	}
}

// step handles the completions and events that are there, and reports whether there were
// any. It waits only for a port that is full.
func (r *Receiver) step() (bool, error) {
	n, err := r.Poll()
	if err != nil {
		return false, err
	}
	if n > 0 {
		if err := r.receive(n); err != nil || !r.W.Spend(n) {
			return true, err
		}
	}
	if r.Queue.Pending.Load() {
		return true, r.ReadQueue()
	}
	return n > 0, nil
}

// Poll polls the completions.
func (r *Receiver) Poll() (int, error) {
	n, err := r.ch.RecvCQ.Poll(r.comps[:r.W.Allowance(len(r.comps))])
	if err != nil {
		return 0, fmt.Errorf("poll the receive queue of data channel %d: %w", r.ch.Number, err)
	}
	r.W.Took(n)
	return n, nil
}

// Failure returns the error of the next failed receive. Only the receiver's goroutine calls it.
func (r *Receiver) Failure() error {
	return core.NextFailure(r.ch.RecvCQ, nil, r.comps[:], r.ch.Number)
}

// receive handles the n completions that were polled.
func (r *Receiver) receive(n int) error {
	if err := r.Deliver(n); err != nil {
		return err
	}
	return r.Renew(n)
}

// Deliver delivers the frames of the n completions that were polled. The caller calls Renew afterwards.
func (r *Receiver) Deliver(n int) error {
	if r.c.Mode.Sends() {
		return r.receiveSent(r.comps[:n])
	}
	r.c.HearFrames()
	return r.receiveWritten(r.comps[:n])
}

// receiveWritten handles writes with the indication in their immediate data.
func (r *Receiver) receiveWritten(comps []fabric.Completion) error {
	indicated := r.c.Mode.Indicated()
	for i := range comps {
		c := &comps[i]
		if err := c.Err(); err != nil {
			return fmt.Errorf("receive on data channel %d: %w", r.ch.Number, err)
		}
		if c.Op != fabric.OpRecvWriteImm {
			if err := r.receiveMessage(c); err != nil {
				return err
			}
			continue
		}
		if indicated {
			return r.violation(core.ErrImmediate, "immediate data %#x", c.Imm)
		}
		pool, elem, length := protocol.ImmData(c.Imm).Unpack()
		if uint32(length) != c.Len {
			return r.violation(core.ErrIndicatedLength, "%d bytes indicated, %d written", length, c.Len)
		}
		err := r.consume(&core.RxEvent{Class: uint32(pool) - r.first, Elem: uint32(elem), Length: uint32(length)}, false)
		if err != nil {
			return err
		}
	}
	return r.flush()
}

// receiveMessage handles a SEND that arrives between the writes: one that invalidates a
// key, or one whose immediate data is a key.
func (r *Receiver) receiveMessage(c *fabric.Completion) error {
	switch {
	case c.Flags&fabric.WithInv != 0:
		return r.invalidated(c.InvKey)
	case c.Flags&fabric.WithImm != 0 && r.o.KeySend:
		return r.keyed(c.Imm)
	default:
		return r.violation(core.ErrDataSend, "a SEND of %d bytes", c.Len)
	}
}

// receiveSent handles frames that were sent as messages. A late message is no sign of the peer's life:
// anybody on the fabric can have sent it, and it is not opened.
func (r *Receiver) receiveSent(comps []fabric.Completion) error {
	heard := false
	for i := range comps {
		c := &comps[i]
		if err := c.Err(); err != nil {
			return fmt.Errorf("receive on data channel %d: %w", r.ch.Number, err)
		}
		if c.Op != fabric.OpRecv {
			return r.violation(core.ErrImmediate, "immediate data %#x", c.Imm)
		}
		_, _, buffer, _ := protocol.WRID(c.ID).Unpack()
		msg := r.numbering.pool.Element(buffer)[:c.Len]
		m, err := protocol.DecodeSendData(msg)
		if err != nil {
			return r.violation(err, "SendData")
		}
		late, err := r.sequence(m.TransactionContext)
		if err != nil {
			return err
		}
		if !late {
			if err := r.used(m.TransactionContext, len(msg)); err != nil {
				return err
			}
			elem := int(m.TransactionContext % uint64(r.numbering.pool.Elements.Len()))
			data, err := r.opening.open(m.Data, m.TransactionContext, r.numbering.pool, elem, false)
			if err != nil {
				return err
			}
			if err := r.out.unpack(data); err != nil {
				return err
			}
			heard = true
		}
		r.recvs[i] = r.bufferWR(buffer)
	}
	if heard {
		r.c.HearFrames()
	}
	return r.flush()
}

// consume takes the data that the peer has written to an element; indicated says whether
// the transfer was indicated on the control channel. The next flush delivers the data and
// frees the element. An element of a one-touch pool is delivered later, when its window is
// invalidated and the peer cannot write to it any more.
func (r *Receiver) consume(e *core.RxEvent, indicated bool) error {
	p, err := r.find(e.Class)
	if err != nil {
		return err
	}
	// data is the element itself, which belongs to the receiver until Release.
	data, err := p.Elements.Consume(int(e.Elem), int(e.Length))
	if err != nil {
		return r.violation(err, "pool %d", p.Ref)
	}
	if indicated && !r.mayIndicate(p) {
		return r.violation(core.ErrNeedless, "pool %d", p.Ref)
	}
	number := r.opening.number()
	if p.OneTouch {
		r.oneTouch.collect(bufpool.Written{
			Local: p, Element: int(e.Elem), Data: data, Number: number, Indicated: indicated, Last: e.Last,
		})
		return nil
	}
	r.consumed = append(r.consumed, consumed{pool: p, elem: int(e.Elem)})
	if indicated {
		r.returns.Indicated(p, e.Last)
	}
	if data, err = r.opening.open(data, number, p, int(e.Elem), true); err != nil {
		return err
	}
	return r.out.unpack(data)
}

// mayIndicate reports whether the peer may indicate transfers to a pool by a message. The data of one
// that immediate data can name may become visible later than such a message.
func (r *Receiver) mayIndicate(p *bufpool.Local) bool {
	size := pools.Config{ElementSize: p.Elements.ElementSize(), Elements: p.Elements.Len()}
	return size.Indicated(r.c.Mode, p.Ref)
}

// flush writes the consumed frames to the port and frees their elements. It requests the
// invalidation of the windows of one-touch elements that were set aside.
func (r *Receiver) flush() error {
	r.oneTouch.revoke()
	if err := r.out.write(); err != nil {
		return err
	}
	for i := range r.consumed {
		r.consumed[i].pool.Elements.Release(r.consumed[i].elem)
	}
	r.consumed = r.consumed[:0]
	return nil
}

// Renew posts as many receives as the batch has used up. Then it returns elements: there
// must be a posted receive for each element that the peer may write.
func (r *Receiver) Renew(n int) error {
	if err := r.Post(n - r.renewed); err != nil {
		return err
	}
	r.renewed = 0
	return r.GiveBack()
}

// Post posts n receives without memory.
func (r *Receiver) Post(n int) error {
	for n > 0 {
		k := min(n, len(r.recvs))
		if _, err := r.ch.QP.PostRecv(r.recvs[:k]); err != nil {
			return fmt.Errorf("post receives on data channel %d: %w", r.ch.Number, fabric.Refused(r.ch.QP, err))
		}
		n -= k
	}
	return nil
}

// GiveBack returns elements to the peer while a pool has enough, or the peer waits for
// them.
func (r *Receiver) GiveBack() error {
	for r.Due() {
		if sent, err := r.control.TrySend(&r.Queue.Wakeup, r.update); err != nil || !sent {
			return err
		}
	}
	return nil
}

// Due reports whether elements should be returned now.
func (r *Receiver) Due() bool { return r.returns.Due(r.Pools()) }

// update builds the next BufferRecvPoolUpdate, or returns nil if no element is to be
// returned.
func (r *Receiver) update(dst []byte) []byte {
	var some [pools.MaxPools]protocol.PoolReturn
	pools := r.Pools()
	returns := r.returns.Next(pools, some[:0])
	if len(returns) == 0 {
		return nil
	}
	dst = protocol.AppendBufferRecvPoolUpdate(dst, 0, returns...)
	r.returns.Sent(pools, returns)
	r.Count.UpdatesSent.Add(1)
	return dst
}

// ReadQueue handles the events from the control handler, the pool manager and the sender.
func (r *Receiver) ReadQueue() error {
	events := r.Queue.Take()
	sent := r.sent.Load()
	// Transfers on the data channel come before the events: the peer indicates a transfer,
	// or flushes a pool, only after all its earlier writes have completed. There can be no
	// more of these than posted receives, which also bounds this loop if the peer never
	// stops sending.
	for taken := 0; taken < r.o.Receives; {
		n, err := r.Poll()
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
		if err := r.receive(n); err != nil {
			return err
		}
		taken += n
	}
	for i := range events {
		if err := r.read(&events[i]); err != nil {
			return err
		}
	}
	if err := r.sentSoFar(sent); err != nil {
		return err
	}
	if err := r.flush(); err != nil {
		return err
	}
	return r.GiveBack()
}

// read carries out one action.
func (r *Receiver) read(e *core.RxEvent) error {
	switch e.Do {
	case bufpool.Consume:
		r.Count.RxIndicated.Add(1)
		return r.consume(e, true)
	case bufpool.Adopt:
		if err := r.Adopt(e.Local); err != nil {
			return err
		}
		return r.manager.Notify(bufpool.Event{Did: bufpool.Adopt, Local: e.Local})
	case bufpool.Drain:
		if err := r.flush(); err != nil {
			return err
		}
		r.adopted.retire(e.Local)
		if e.Local.OneTouch && e.Local.Elements.Ledger().Consumed > 0 {
			// The pool ends when these elements' windows are bound again: only then can
			// all its windows be invalidated.
			return nil
		}
		return r.end(e.Local)
	case bufpool.Revoke:
		return r.revoked(e.Batch)
	case bufpool.Rebind:
		return r.rebound(e.Batch)
	default:
		return nil // an action of others
	}
}

// end ends the use of a pool that has no consumed elements.
func (r *Receiver) end(p *bufpool.Local) error {
	for r.returns.Retire(p) {
		if err := r.control.Send(r.update); err != nil {
			return err
		}
	}
	r.remove(p, r.o.Invalidates)
	if r.c.Mode.Immediate() {
		r.spare += p.Elements.Len()
	}
	r.returns.Forget(p)
	return r.manager.Notify(bufpool.Event{Did: bufpool.Drain, Local: p})
}

// Adopt adds a pool to those of the channel and posts the receives for its elements.
func (r *Receiver) Adopt(p *bufpool.Local) error {
	r.add(p)
	switch {
	case r.c.Mode.Indicated():
		return nil
	case r.c.Mode.Sends():
		return r.postBuffers(p)
	default:
		n := p.Elements.Len() - r.spare
		r.spare = max(-n, 0)
		return r.Post(n)
	}
}

// invalidated handles a SEND with invalidate; the device has already invalidated the key.
// The peer must send it for a pool that is being flushed. In any other case it breaks the
// protocol.
func (r *Receiver) invalidated(key uint32) error {
	p := r.adopted.invalidated(key)
	if p == nil {
		return r.violation(bufpool.ErrInvalidated, "key %#x", key)
	}
	if err := r.manager.Notify(bufpool.Event{Kind: bufpool.Invalidated, Local: p}); err != nil {
		return r.violation(err, "key %#x", key)
	}
	r.Count.WindowsInvalidatedByPeer.Add(1)
	return nil
}

// keyed handles the key of a pool that the peer lends. It first posts the receive again,
// so that there is always one for the next key.
func (r *Receiver) keyed(key uint32) error {
	if err := r.Post(1); err != nil {
		return err
	}
	r.renewed++
	if err := r.manager.Notify(bufpool.Event{Kind: bufpool.Keyed, Channel: r.ch.Number, Key: key}); err != nil {
		return r.violation(err, "key %#x", key)
	}
	return nil
}

// postBuffers posts a receive into each element of a pool, the only one of its channel.
func (r *Receiver) postBuffers(p *bufpool.Local) error {
	r.numbering.pool = p
	for i := 0; i < p.Elements.Len(); {
		n := 0
		for ; n < len(r.recvs) && i < p.Elements.Len(); n++ {
			r.recvs[n] = r.bufferWR(uint16(i))
			i++
		}
		if err := r.Post(n); err != nil {
			return err
		}
	}
	return nil
}

// revoked delivers the elements of a batch whose windows are invalidated, and requests
// that the windows are bound again.
func (r *Receiver) revoked(b *bufpool.Batch) error {
	r.oneTouch.invalid(b)
	for i := range b.Written {
		w := &b.Written[i]
		data, err := r.opening.open(w.Data, w.Number, w.Local, w.Element, false)
		if err != nil {
			return err
		}
		if err := r.out.unpack(data); err != nil {
			return err
		}
	}
	if err := r.flush(); err != nil {
		return err
	}
	r.oneTouch.rebind(b)
	return nil
}

// rebound marks the elements of a batch, whose windows are bound again, to be returned.
func (r *Receiver) rebound(b *bufpool.Batch) error {
	b.Rebound(&r.returns)
	for i := range b.Written {
		// A pool that is being flushed ends with its last consumed element.
		if l := b.Written[i].Local; r.retiring(l) && l.Elements.Ledger().Consumed == 0 {
			if err := r.end(l); err != nil {
				return err
			}
		}
	}
	r.oneTouch.batches.Put(b)
	return nil
}

// abandon counts the frames that are not delivered at the end of a session, because the
// peer can still write to their one-touch elements.
func (r *Receiver) abandon() {
	for _, b := range r.oneTouch.batches.Abandoned() {
		for i := range b.Written {
			// The number is the peer's claim, and is used for nothing else.
			r.Count.RxUnrevoked.Add(uint64(r.opening.framesIn(b.Written[i].Data)))
		}
	}
}

// Finish delivers what had arrived before the session ended. err is the receiver's own
// failure, if any.
func (r *Receiver) Finish(err error) error {
	if err == nil {
		r.drain()
	} else {
		_ = r.flush() // err is the cause
	}
	r.abandon()
	return err
}

// drain delivers what the peer had written when this side ended the session in good order.
// The number of posted receives bounds the loop. Errors are ignored, because the session
// has ended.
func (r *Receiver) drain() {
	if !errors.Is(r.c.Failure, net.ErrClosed) {
		return
	}
	if r.Queue.Pending.Load() && r.ReadQueue() != nil {
		return
	}
	for taken := 0; taken < r.o.Receives; {
		n, err := r.Poll()
		if n == 0 || err != nil {
			return
		}
		taken += n
		if r.Deliver(n) != nil {
			_ = r.flush()
			return
		}
	}
}

func (r *Receiver) violation(rule error, format string, args ...any) error {
	return core.ChannelViolation(r.ch.Number, rule, format, args...)
}
