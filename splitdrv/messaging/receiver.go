package messaging

import (
	"errors"
	"fmt"
	"net"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/epoll"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/vnet"
)

// The receive path, from the peer to a port. Each data channel has one goroutine that goes
// through these stages. The functions in this file and in delivery.go are in the same
// order.
//
//	run       repeats work until the session ends, and sleeps while there is nothing to do
//	work      repeats step; if there is nothing to do, arms the completion queue and tries once more
//	step      handles one batch of completions, or the events in its queue
//	poll      polls the completions
//	hand      determines pool, element and length, in the way of the transfer mode (senddata.go)
//	consume   checks that the element was lent and not yet written; an element of a one-touch
//	          pool is set aside until its window is invalidated (revoke.go)
//	unpack    checks the frames (delivery.go)
//	flush     writes the frames to the port and frees the elements
//	renew     posts the receives again
//	giveBack  returns elements when enough are free

// receiver moves frames from the peer to a port. Its fields belong to its goroutine, except
// the queue of events and the atomic values. It has a method for each stage, each mode and
// each event; parts with a state of their own are separate structs.
type receiver struct {
	c            *shared
	o            receiveOptions
	ch           *dataQP
	control      *controlSends
	manager      *poolManager
	w            *worker
	queue        queue[rxEvent]
	idle         *epoll.Set // waits for completions, or events
	notification notification
	comps        [64]fabric.Completion
	recvs        [64]fabric.RecvWR

	adopted
	numbering
	spare    int        // posted receives beyond the number of elements
	renewed  int        // receives of the current batch that are already posted again
	consumed []consumed // elements that the next flush frees
	oneTouch revocations
	returns  bufpool.Returns
	out      delivery
	count    rxCounters
}

// consumed is an element that the peer has written.
type consumed struct {
	pool *bufpool.Local
	elem int
}

func newReceiver(
	c *shared, o receiveOptions, ch *dataQP, w *worker, control *controlSends, pools *poolManager,
) (*receiver, error) {
	r := &receiver{c: c, o: o, ch: ch, control: control, manager: pools}
	r.oneTouch.count = &r.count
	r.returns = bufpool.Returns{Mode: c.mode, Room: protocol.MaxControlSize - protocol.HeaderSize}
	r.adopted.init(ch.number, c.firstRef(ch.number), c.maxPools)
	r.numbering = numbering{channel: ch.number, lossy: c.mode == protocol.ModeSendUC, count: &r.count}
	r.consumed = make([]consumed, 0, len(r.comps))
	for i := range r.recvs {
		r.recvs[i].ID = uint64(protocol.PackWRID(protocol.WRDataRecv, uint8(ch.number), 0, 0))
	}
	var err error
	if r.queue.wake, err = c.newEvent(); err != nil {
		return nil, err
	}
	if r.w = w; !o.Poll { // with Poll, sender and receiver share a worker
		r.w = c.handlers.newWorker(ch.number, RoleReceiver, r.queue.wake)
		r.w.polling.moved = func() (frames, bytes uint64) { return r.count.RxFrames.Load(), r.count.RxBytes.Load() }
	}
	r.out = delivery{
		c: c, w: r.w, channel: ch.number, wake: r.queue.wake, count: &r.count, path: o.Path, noPack: o.NoPack,
		writes: make([]vnet.WriteOp, 0, protocol.MaxPackFrames),
	}
	return r, nil
}

// begin makes the waiters. It is called once the port is known.
func (r *receiver) begin(port Port) (err error) {
	r.notification = notification{cq: r.ch.recvCQ, solicited: true}
	if r.idle, err = r.c.newWaiter(epoll.Readable(r.ch.recvCQ.FD()), epoll.Readable(r.queue.wake.FD())); err != nil {
		return err
	}
	return r.out.begin(port)
}

// run is the receiver's goroutine.
func (r *receiver) run() error { return r.finish(r.idle.Run(r.work)) }

// work repeats step until there is nothing to do or the session has ended. The waiter
// calls it again after each event.
func (r *receiver) work() (ended bool, err error) {
	if r.queue.asleep.Swap(false) {
		r.count.RxWakeups.Add(1)
		r.w.woke()
	}
	for {
		if ended, err = r.w.untilIdle(&r.notification, &r.c.stopped, r.step); ended {
			return ended, err
		}
		r.queue.asleep.Store(true)
		// A goroutine that put something into the queue before asleep was set has not
		// raised the event.
		if !r.queue.pending.Load() {
			return false, nil
		}
		r.queue.asleep.Store(false)
	}
}

// step handles the completions and events that are there, and reports whether there were
// any. It waits only for a port that is full.
func (r *receiver) step() (bool, error) {
	n, err := r.poll()
	if err != nil {
		return false, err
	}
	if n > 0 {
		if err := r.receive(r.comps[:n]); err != nil || !r.w.spend(n) {
			return true, err
		}
	}
	if r.queue.pending.Load() {
		return true, r.readQueue()
	}
	return n > 0, nil
}

func (r *receiver) poll() (int, error) {
	n, err := r.ch.recvCQ.Poll(r.comps[:r.w.allowance(len(r.comps))])
	if err != nil {
		return 0, fmt.Errorf("poll the receive queue of data channel %d: %w", r.ch.number, err)
	}
	r.w.took(n)
	return n, nil
}

// failure returns the error of the next failed receive. Only the receiver's goroutine calls it.
func (r *receiver) failure() error { return nextFailure(r.ch.recvCQ, nil, r.comps[:], r.ch.number) }

// receive handles one batch of completions.
func (r *receiver) receive(comps []fabric.Completion) error {
	if err := r.hand(comps); err != nil {
		return err
	}
	return r.renew(len(comps))
}

// hand delivers the frames of a batch of completions. The caller calls renew afterwards.
func (r *receiver) hand(comps []fabric.Completion) error {
	r.c.hearFrames()
	if r.c.mode.Sends() {
		return r.receiveSent(comps)
	}
	return r.receiveWritten(comps)
}

// receiveWritten handles writes with the indication in their immediate data.
func (r *receiver) receiveWritten(comps []fabric.Completion) error {
	for i := range comps {
		c := &comps[i]
		if err := c.Err(); err != nil {
			return fmt.Errorf("receive on data channel %d: %w", r.ch.number, err)
		}
		if c.Op != fabric.OpRecvWriteImm {
			if err := r.receiveMessage(c); err != nil {
				return err
			}
			continue
		}
		if r.c.mode == protocol.ModeIndicate {
			return r.violation(ErrImmediate, "immediate data %#x", c.Imm)
		}
		pool, elem, length := protocol.ImmData(c.Imm).Unpack()
		if uint32(length) != c.Len {
			return r.violation(ErrIndicatedLength, "%d bytes indicated, %d written", length, c.Len)
		}
		err := r.consume(&rxEvent{class: uint32(pool) - r.first, elem: uint32(elem), length: uint32(length)}, false)
		if err != nil {
			return err
		}
	}
	return r.flush()
}

// receiveMessage handles a SEND that arrives between the writes: one that invalidates a
// key, or one whose immediate data is a key.
func (r *receiver) receiveMessage(c *fabric.Completion) error {
	switch {
	case c.Flags&fabric.WithInv != 0:
		return r.invalidated(c.InvKey)
	case c.Flags&fabric.WithImm != 0 && r.o.KeySend:
		return r.keyed(c.Imm)
	default:
		return r.violation(ErrDataSend, "a SEND of %d bytes", c.Len)
	}
}

// receiveSent handles frames that were sent as messages.
func (r *receiver) receiveSent(comps []fabric.Completion) error {
	for i := range comps {
		c := &comps[i]
		if err := c.Err(); err != nil {
			return fmt.Errorf("receive on data channel %d: %w", r.ch.number, err)
		}
		if c.Op != fabric.OpRecv {
			return r.violation(ErrImmediate, "immediate data %#x", c.Imm)
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
			if err := r.out.unpack(m.Data); err != nil {
				return err
			}
		}
		r.recvs[i] = r.bufferWR(buffer)
	}
	return r.flush()
}

// consume takes the data that the peer has written to an element; indicated says whether
// the transfer was indicated on the control channel. The next flush delivers the data and
// frees the element. An element of a one-touch pool is delivered later, when its window is
// invalidated and the peer cannot write to it any more.
func (r *receiver) consume(e *rxEvent, indicated bool) error {
	p, err := r.find(e.class)
	if err != nil {
		return err
	}
	// data is the element itself, which belongs to the receiver until Release.
	data, err := p.Elements.Consume(int(e.elem), int(e.length))
	if err != nil {
		return r.violation(err, "pool %d", p.Ref)
	}
	if p.OneTouch {
		r.oneTouch.collect(bufpool.Written{Local: p, Element: int(e.elem), Data: data, Indicated: indicated, Last: e.last})
		return nil
	}
	r.consumed = append(r.consumed, consumed{pool: p, elem: int(e.elem)})
	if indicated {
		r.returns.Indicated(p, e.last)
	}
	return r.out.unpack(data)
}

// flush writes the consumed frames to the port and frees their elements. It requests the
// invalidation of the windows of one-touch elements that were set aside.
func (r *receiver) flush() error {
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

// renew posts as many receives as the batch has used up. Then it returns elements: there
// must be a posted receive for each element that the peer may write.
func (r *receiver) renew(n int) error {
	if err := r.post(n - r.renewed); err != nil {
		return err
	}
	r.renewed = 0
	return r.giveBack()
}

// post posts n receives without memory.
func (r *receiver) post(n int) error {
	for n > 0 {
		k := min(n, len(r.recvs))
		if _, err := r.ch.qp.PostRecv(r.recvs[:k]); err != nil {
			return fmt.Errorf("post receives on data channel %d: %w", r.ch.number, refused(r.ch.qp, err))
		}
		n -= k
	}
	return nil
}

// giveBack returns elements to the peer while a pool has enough, or the peer waits for
// them.
func (r *receiver) giveBack() error {
	for r.due() {
		if sent, err := r.control.trySend(&r.queue, r.update); err != nil || !sent {
			return err
		}
	}
	return nil
}

// due reports whether elements should be returned now.
func (r *receiver) due() bool { return r.returns.Due(*r.local.Load()) }

// update builds the next BufferRecvPoolUpdate, or returns nil if no element is to be
// returned.
func (r *receiver) update(dst []byte) []byte {
	var some [MaxPools]protocol.PoolReturn
	pools := *r.local.Load()
	returns := r.returns.Next(pools, some[:0])
	if len(returns) == 0 {
		return nil
	}
	dst = protocol.AppendBufferRecvPoolUpdate(dst, 0, returns...)
	r.returns.Sent(pools, returns)
	r.count.UpdatesSent.Add(1)
	return dst
}

// readQueue handles the events from the control handler, the pool manager and the sender.
func (r *receiver) readQueue() error {
	events := r.queue.take()
	r.sentQueued.Store(false)
	sent := r.sent.Load()
	// Transfers on the data channel come before the events: the peer indicates a transfer,
	// or flushes a pool, only after all its earlier writes have completed. There can be no
	// more of these than posted receives, which also bounds this loop if the peer never
	// stops sending.
	for taken := 0; taken < r.o.Receives; {
		n, err := r.poll()
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
		if err := r.receive(r.comps[:n]); err != nil {
			return err
		}
		taken += n
	}
	for i := range events {
		if err := r.read(&events[i], sent); err != nil {
			return err
		}
	}
	if err := r.flush(); err != nil {
		return err
	}
	return r.giveBack()
}

// read handles one event. sent is the value for rxSent.
func (r *receiver) read(l *rxEvent, sent uint64) error {
	switch l.kind {
	case rxIndicated:
		r.count.RxIndicated.Add(1)
		return r.consume(l, true)
	case rxAdopt:
		if err := r.adopt(l.pool); err != nil {
			return err
		}
		return r.manager.notify(bufpool.Event{Kind: bufpool.Adopted, Local: l.pool})
	case rxDrain:
		if err := r.flush(); err != nil {
			return err
		}
		r.adopted.retire(l.pool)
		if l.pool.OneTouch && l.pool.Elements.Ledger().Consumed > 0 {
			// The pool is given when these elements' windows are bound again: only then can
			// all its windows be invalidated.
			return nil
		}
		return r.give(l.pool)
	case rxRevoked:
		return r.revoked(l.batch)
	case rxRebound:
		return r.rebound(l.batch)
	case rxSent:
		return r.sentSoFar(sent)
	default: // rxUnblocked: readQueue returns elements when it has read
		return nil
	}
}

// give ends the use of a pool that has no consumed elements.
func (r *receiver) give(p *bufpool.Local) error {
	for r.returns.Retire(p) {
		if err := r.control.send(r.update); err != nil {
			return err
		}
	}
	r.remove(p, r.o.Invalidates)
	if r.c.mode == protocol.ModeImm {
		r.spare += p.Elements.Len()
	}
	r.returns.Forget(p)
	return r.manager.notify(bufpool.Event{Kind: bufpool.Drained, Local: p})
}

// adopt adds a pool to those of the channel and posts the receives for its elements.
func (r *receiver) adopt(p *bufpool.Local) error {
	r.add(p)
	switch r.c.mode {
	case protocol.ModeIndicate:
		return nil
	case protocol.ModeSend, protocol.ModeSendUC:
		return r.postBuffers(p)
	default:
		n := p.Elements.Len() - r.spare
		r.spare = max(-n, 0)
		return r.post(n)
	}
}

// invalidated handles a SEND with invalidate; the device has already invalidated the key.
// The peer must send it for a pool that is being flushed. In any other case it breaks the
// protocol.
func (r *receiver) invalidated(key uint32) error {
	p := r.adopted.invalidated(key)
	if p == nil {
		return r.violation(bufpool.ErrInvalidated, "key %#x", key)
	}
	if err := r.manager.notify(bufpool.Event{Kind: bufpool.Invalidated, Local: p}); err != nil {
		return r.violation(err, "key %#x", key)
	}
	r.count.WindowsInvalidatedByPeer.Add(1)
	return nil
}

// keyed handles the key of a pool that the peer lends. It first posts the receive again,
// so that there is always one for the next key.
func (r *receiver) keyed(key uint32) error {
	if err := r.post(1); err != nil {
		return err
	}
	r.renewed++
	if err := r.manager.notify(bufpool.Event{Kind: bufpool.Keyed, Channel: r.ch.number, Key: key}); err != nil {
		return r.violation(err, "key %#x", key)
	}
	return nil
}

// indicated puts the events of a BufferRDMAIndicate into the queue. The control handler
// calls it. A peer that indicates more transfers than there are elements breaks the
// protocol.
func (r *receiver) indicated(events []rxEvent) error {
	if r.queue.len()+len(events) > int(r.elements.Load())+r.c.maxPools+protocol.IndicatesPerChannel {
		return r.violation(ErrIndications, "%d more, with %d elements in all", len(events), r.elements.Load())
	}
	r.queue.put(events...)
	return nil
}

// postBuffers posts a receive into each element of a pool, the only one of its channel.
func (r *receiver) postBuffers(p *bufpool.Local) error {
	r.numbering.pool = p
	for i := 0; i < p.Elements.Len(); {
		n := 0
		for ; n < len(r.recvs) && i < p.Elements.Len(); n++ {
			r.recvs[n] = r.bufferWR(uint16(i))
			i++
		}
		if err := r.post(n); err != nil {
			return err
		}
	}
	return nil
}

// revoked delivers the elements of a batch whose windows are invalidated, and requests
// that the windows are bound again.
func (r *receiver) revoked(b *bufpool.Batch) error {
	r.oneTouch.invalid(b)
	for i := range b.Written {
		if err := r.out.unpack(b.Written[i].Data); err != nil {
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
func (r *receiver) rebound(b *bufpool.Batch) error {
	b.Rebound(&r.returns)
	for i := range b.Written {
		// A pool that is being flushed ends with its last consumed element.
		if l := b.Written[i].Local; r.retiring(l) && l.Elements.Ledger().Consumed == 0 {
			if err := r.give(l); err != nil {
				return err
			}
		}
	}
	r.oneTouch.batches.Put(b)
	return nil
}

// abandon counts the frames that are not delivered at the end of a session, because the
// peer can still write to their one-touch elements.
func (r *receiver) abandon() {
	for _, b := range r.oneTouch.batches.Abandoned() {
		for i := range b.Written {
			// The number is the peer's claim, and is used for nothing else.
			r.count.RxUnrevoked.Add(uint64(r.out.framesIn(b.Written[i].Data)))
		}
	}
}

// finish delivers what had arrived before the session ended. err is the receiver's own
// failure, if any.
func (r *receiver) finish(err error) error {
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
func (r *receiver) drain() {
	if !errors.Is(r.c.failure, net.ErrClosed) {
		return
	}
	if r.queue.pending.Load() && r.readQueue() != nil {
		return
	}
	for taken := 0; taken < r.o.Receives; {
		n, err := r.poll()
		if n == 0 || err != nil {
			return
		}
		taken += n
		if r.hand(r.comps[:n]) != nil {
			_ = r.flush()
			return
		}
	}
}

func (r *receiver) violation(rule error, format string, args ...any) error {
	return channelViolation(r.ch.number, rule, format, args...)
}

// renewsAtOnce reports whether the receives of the last n completions must be posted again
// immediately. That holds for receives with memory, which differ from each other, and for
// those of messages between writes, of which there are few.
func (r *receiver) renewsAtOnce(n int) bool {
	if r.c.mode != protocol.ModeImm {
		return n > 0
	}
	for i := range r.comps[:n] {
		if r.comps[i].Op != fabric.OpRecvWriteImm {
			return true
		}
	}
	return false
}
