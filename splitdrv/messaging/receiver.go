package messaging

import (
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/epoll"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/vnet"
)

// The receive path: from the peer to a port. One goroutine for each data channel
// goes through these stages, of which the functions follow here and in delivery.go
// in this order.
//
//	run       works, until the session ends, asleep while there is nothing to do
//	work      step after step; when there is nothing to do, arm, and one step more
//	step      takes one batch of completions, or reads what others have for it (inbox.go)
//	poll      polls them
//	hand      finds out pool, element and length, as the mode has it (senddata.go)
//	consume   checks that the element was lent and is written once; with one-touch pools
//	          it waits here until its window is invalid (onetouch.go)
//	unpack    checks the frames (delivery.go)
//	flush     writes them to the port and frees the elements
//	renew     posts the receives again
//	giveBack  returns elements when enough are free

// receiver moves frames from the peer to a port. All it has is its goroutine's, but
// for what others leave in its queue, and atomic values.
type receiver struct {
	c      *Conn
	ch     *channel
	w      *worker
	queue  queue[rxEvent]
	idle   *epoll.Set // waits for completions, or events
	notice notice
	comps  [64]fabric.Completion
	recvs  [64]fabric.RecvWR

	adopted
	numbering
	consumed  []consumed      // free again after the next flush
	touched   bufpool.Batches // of one-touch pools
	returns   bufpool.Returns
	unblocked atomic.Bool // a slot is free for the update that found none
	out       delivery
	count     rxCounters
}

// adopted are the pools of the channel that are lent.
type adopted struct {
	pools    []*bufpool.Local                 // by reference, from the channel's first; nil where none is lent
	local    atomic.Pointer[[]*bufpool.Local] // those that there are, for others to read; replaced as a whole
	elements atomic.Int64                     // of those
	spare    int                              // posted receives that stand for no element
	windowed []*bufpool.Local                 // those with windows that may be bound
}

// consumed is an element that the peer has written.
type consumed struct {
	pool *bufpool.Local
	elem int
}

func newReceiver(c *Conn, ch *channel) (*receiver, error) {
	r := &receiver{c: c, ch: ch}
	r.returns = bufpool.Returns{Mode: c.cfg.Mode, Room: protocol.MaxControlSize - protocol.HeaderSize}
	r.pools = make([]*bufpool.Local, c.cfg.MaxPools)
	r.local.Store(new([]*bufpool.Local))
	r.consumed = make([]consumed, 0, len(r.comps))
	for i := range r.recvs {
		r.recvs[i].ID = uint64(protocol.PackWRID(protocol.WRDataRecv, uint8(ch.number), 0, 0))
	}
	var err error
	if r.queue.wake, err = c.newEvent(); err != nil {
		return nil, err
	}
	if c.cfg.Poll {
		r.w = ch.tx.w
	} else {
		r.w = c.handlers.newWorker(ch.number, RoleReceiver, r.queue.wake)
	}
	r.out = delivery{
		c: c, w: r.w, channel: ch.number, wake: r.queue.wake, count: &r.count,
		writes: make([]vnet.WriteOp, 0, protocol.MaxPackFrames),
	}
	return r, nil
}

// begin makes the waiters, now that the port is known.
func (r *receiver) begin(port Port) (err error) {
	r.notice = notice{cq: r.ch.recvCQ, solicited: true}
	if r.idle, err = r.c.newWaiter(epoll.Readable(r.ch.recvCQ.FD()), epoll.Readable(r.queue.wake.FD())); err != nil {
		return err
	}
	return r.out.begin(port)
}

// run is the receiver's goroutine.
func (r *receiver) run() error {
	defer r.abandon()
	var err error
	if end := r.idle.Run(func() (ended bool) {
		ended, err = r.work()
		return ended
	}); err == nil {
		err = end
	}
	if err != nil {
		return r.failed(err)
	}
	r.drain()
	return nil
}

// work goes on until there is nothing to do, or the session has ended. It is called
// again when something has happened meanwhile.
func (r *receiver) work() (ended bool, err error) {
	if r.queue.asleep.Swap(false) {
		r.count.RxWakeups.Add(1)
		r.w.woke()
	}
	for !r.c.stopped.Load() {
		worked, err := r.step()
		if err == nil && !worked {
			worked, err = r.spin()
		}
		if err == nil && !worked {
			worked, err = r.arm()
		}
		if err != nil {
			return true, err
		}
		if !worked {
			r.queue.asleep.Store(true)
			// Who saw it awake has not raised the event.
			if !r.queue.pending.Load() {
				return false, nil
			}
			r.queue.asleep.Store(false)
		}
	}
	return true, nil
}

// step does what there is to do, and reports whether there was anything. It
// waits for nothing but a port that is full.
func (r *receiver) step() (bool, error) {
	n, err := r.poll()
	switch {
	case err != nil:
		return false, err
	case n > 0:
		if err := r.take(r.comps[:n]); err != nil || !r.w.spend(n) || !r.queue.pending.Load() {
			return true, err
		}
		return true, r.readQueue()
	case r.queue.pending.Load():
		return true, r.readQueue()
	case r.unblocked.Swap(false):
		return true, r.giveBack() // which had found no slot to send from
	default:
		return false, nil
	}
}

func (r *receiver) poll() (int, error) {
	n, err := r.ch.recvCQ.Poll(r.comps[:r.w.allowance(len(r.comps))])
	if err != nil {
		return 0, fmt.Errorf("poll the receive queue of data channel %d: %w", r.ch.number, err)
	}
	r.w.took(n)
	return n, nil
}

// take handles one batch of completions.
func (r *receiver) take(comps []fabric.Completion) error {
	if err := r.hand(comps); err != nil {
		return err
	}
	return r.renew(len(comps))
}

// hand delivers the frames of a batch of completions. renew comes next.
func (r *receiver) hand(comps []fabric.Completion) error {
	r.c.heard.Add(1)
	if r.c.cfg.Mode.Sends() {
		return r.takeSent(comps)
	}
	return r.takeWritten(comps)
}

// takeWritten handles writes with the indication in their immediate data.
func (r *receiver) takeWritten(comps []fabric.Completion) error {
	for i := range comps {
		c := &comps[i]
		if err := c.Err(); err != nil {
			return fmt.Errorf("receive on data channel %d: %w", r.ch.number, err)
		}
		if c.Op != fabric.OpRecvWriteImm {
			if c.Flags&fabric.WithInv != 0 {
				if err := r.invalidated(c.InvKey); err != nil {
					return err
				}
				continue
			}
			return r.violation(ErrDataSend, "a SEND of %d bytes", c.Len)
		}
		if r.c.cfg.Mode == protocol.ModeIndicate {
			return r.violation(ErrImmediate, "immediate data %#x", c.Imm)
		}
		pool, elem, length := protocol.ImmData(c.Imm).Unpack()
		if uint32(length) != c.Len {
			return r.violation(ErrIndicatedLength, "%d bytes indicated, %d written", length, c.Len)
		}
		if _, err := r.consume(uint32(pool)-r.c.firstRef(r.ch.number), uint32(elem), uint32(length)); err != nil {
			return err
		}
	}
	return r.flush()
}

// consume takes what the peer has written to an element. It is delivered, and
// the element free, after the next flush.
func (r *receiver) consume(class, elem, length uint32) (*bufpool.Local, error) {
	if class >= uint32(len(r.pools)) || r.pools[class] == nil {
		return nil, r.violation(ErrPool, "pool %d", class+r.c.firstRef(r.ch.number))
	}
	p := r.pools[class]
	// borrowed: the element is ours to read until Release.
	data, err := p.Elements.Consume(int(elem), int(length))
	if err != nil {
		return nil, r.violation(err, "pool %d", p.Ref)
	}
	if p.OneTouch {
		r.gather(p, int(elem), data)
		return p, nil
	}
	r.consumed = append(r.consumed, consumed{pool: p, elem: int(elem)})
	return p, r.out.unpack(data)
}

// flush writes what was consumed and frees the elements; of one-touch pools it
// has the windows of those invalidated that were gathered.
func (r *receiver) flush() error {
	r.revoke()
	if err := r.out.write(); err != nil {
		return err
	}
	for i := range r.consumed {
		r.consumed[i].pool.Elements.Release(r.consumed[i].elem)
	}
	r.consumed = r.consumed[:0]
	return nil
}

// renew posts as many receives as were used up, and then returns elements, each
// of which stands for a posted receive.
func (r *receiver) renew(n int) error {
	if err := r.post(n); err != nil {
		return err
	}
	return r.giveBack()
}

// post posts n receives without memory.
func (r *receiver) post(n int) error {
	for n > 0 {
		k := min(n, len(r.recvs))
		if _, err := r.ch.qp.PostRecv(r.recvs[:k]); err != nil {
			return fmt.Errorf("post receives on data channel %d: %w", r.ch.number, err)
		}
		n -= k
	}
	return nil
}

// giveBack returns elements to the peer when a pool is due, or the peer waits
// for them.
func (r *receiver) giveBack() error {
	for r.returns.Due(*r.local.Load()) {
		sent, err := r.c.control.sendUpdate(r)
		if err != nil || !sent {
			return err
		}
		r.count.UpdatesSent.Add(1)
	}
	return nil
}

// spin polls for as long as the handler says.
func (r *receiver) spin() (bool, error) {
	spin := time.Duration(r.w.spin.Load())
	if spin == 0 {
		return false, nil
	}
	for end := time.Now().Add(spin); time.Now().Before(end) && !r.c.stopped.Load(); {
		if worked, err := r.step(); worked || err != nil {
			return worked, err
		}
	}
	return false, nil
}

// arm has the next completion raise an event, and looks once more, because what
// had completed before raises none.
func (r *receiver) arm() (worked bool, err error) {
	r.queue.wake.Clear() // before the look at what it is raised for
	r.w.place()
	if err := r.notice.arm(); err != nil {
		return false, err
	}
	return r.step()
}

// drain delivers what the peer had written when this side ended the session in
// good order. There is no more of it than posted receives. Errors do not matter
// any more.
func (r *receiver) drain() {
	if !errors.Is(r.c.failure, net.ErrClosed) {
		return
	}
	if r.queue.pending.Load() && r.readQueue() != nil {
		return
	}
	for taken := 0; taken < r.c.cfg.receives(); {
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

// failed delivers the good frames that came before what ends the session.
func (r *receiver) failed(err error) error {
	_ = r.flush() // err says more
	return err
}
