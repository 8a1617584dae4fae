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

// consumed is an element that the peer has written.
type consumed struct {
	pool *bufpool.Local
	elem int
}

// receiver moves frames from the peer to a port, in a goroutine of its own.
type receiver struct {
	c     *Conn
	ch    *channel
	w     *worker
	port  Port
	paced PacedPort // port, if it is one
	queue queue[rxEvent]

	pools    []*bufpool.Local                 // by reference, from the channel's first; nil where none is lent
	lent     atomic.Pointer[[]*bufpool.Local] // those that there are, for others to read; replaced as a whole
	elements atomic.Int64                     // of those
	spare    int                              // posted receives that stand for no element
	windowed []*bufpool.Local                 // those with windows that may be bound
	touched  bufpool.Batches                  // of one-touch pools
	returns  bufpool.Returns

	expected uint64 // send modes: the sequence number of the next message

	// Mode send-uc: what the peer says that it has sent. One event is enough,
	// however often it says so.
	sent   atomic.Uint64
	mailed atomic.Bool

	comps [64]fabric.Completion
	recvs [64]fabric.RecvWR

	// Frames that go to the port together, and the elements that they lie in,
	// which are free again afterwards.
	writes   []vnet.WriteOp
	consumed []consumed
	frames   uint64 // in these, and not counted yet
	bytes    uint64
	idle     *epoll.Set // waits for completions, or events
	full     *epoll.Set // for a port that takes frames again
	held     *epoll.Set // for the end of a port's hold, or a change of it; nil if the port has none
	notice   notice

	unblocked atomic.Bool // a slot is free for the update that found none
	count     rxCounters
}

func newReceiver(c *Conn, ch *channel) (*receiver, error) {
	r := &receiver{c: c, ch: ch, pools: make([]*bufpool.Local, c.cfg.MaxPools)}
	r.returns = bufpool.Returns{Mode: c.cfg.Mode, Room: protocol.MaxControlSize - protocol.HeaderSize}
	r.writes = make([]vnet.WriteOp, 0, protocol.MaxPackFrames)
	r.consumed = make([]consumed, 0, len(r.comps))
	for i := range r.recvs {
		r.recvs[i].ID = uint64(protocol.PackWRID(protocol.WRDataRecv, uint8(ch.number), 0, 0))
	}
	r.lent.Store(new([]*bufpool.Local))
	var err error
	if r.queue.wake, err = c.newEvent(); err != nil {
		return nil, err
	}
	if c.cfg.Poll {
		r.w = ch.tx.w
	} else {
		r.w = c.handlers.newWorker(ch.number, RoleReceiver, r.queue.wake)
	}
	return r, nil
}

// run is the receiver's goroutine.
func (r *receiver) run() error {
	defer r.abandon()
	for !r.c.stopped.Load() {
		worked, err := r.step()
		if err == nil && !worked {
			worked, err = r.spin()
		}
		if err == nil && !worked {
			err = r.sleep()
		}
		if err != nil {
			return r.failed(err)
		}
	}
	r.drain()
	return nil
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

// renew posts as many receives as were used up, and then returns elements, each
// of which stands for a posted receive.
func (r *receiver) renew(n int) error {
	if err := r.post(n); err != nil {
		return err
	}
	return r.giveBack()
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
	data, err := p.Loan.Consume(int(elem), int(length))
	if err != nil {
		return nil, r.violation(err, "pool %d", p.Ref)
	}
	if p.OneTouch {
		r.gather(p, int(elem), data)
		return p, nil
	}
	r.consumed = append(r.consumed, consumed{pool: p, elem: int(elem)})
	return p, r.unpack(data)
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
	for r.returns.Due(*r.lent.Load()) {
		sent, err := r.c.control.sendUpdate(r)
		if err != nil || !sent {
			return err
		}
		r.count.updates.Add(1)
	}
	return nil
}

// sleep arms the completion queue, polls once more, because what had completed
// before raises no event, and waits.
func (r *receiver) sleep() error {
	r.queue.asleep.Store(true)
	defer r.queue.asleep.Store(false)
	r.queue.wake.Clear() // before the look at what it is raised for
	r.w.place()
	if err := r.notice.arm(); err != nil {
		return err
	}
	n, err := r.poll()
	switch {
	case err != nil:
		return err
	case n > 0:
		return r.take(r.comps[:n])
	case r.queue.pending.Load() || r.unblocked.Load() || r.c.stopped.Load():
		return nil
	}
	slept, err := r.idle.Wait()
	if slept {
		r.count.wakeups.Add(1)
		r.w.woke()
	}
	return err
}

// begin makes the waiters, now that the port is known.
func (r *receiver) begin(port Port) (err error) {
	r.port = port
	r.paced, _ = port.(PacedPort)
	r.notice = notice{cq: r.ch.recvCQ, solicited: true}
	if r.idle, err = r.c.newWaiter(epoll.Readable(r.ch.recvCQ.FD()), epoll.Readable(r.queue.wake.FD())); err != nil {
		return err
	}
	if r.full, err = r.c.newWaiter(epoll.Writable(writeFD(r.port))); err != nil || r.paced == nil {
		return err
	}
	r.held, err = r.c.newWaiter(epoll.Readable(r.queue.wake.FD()))
	return err
}
