package fabrictest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/fabric"
)

var _ fabric.QP = (*qp)(nil)

// state of a queue pair. It never goes back.
type state = uint32

const (
	stateInit state = iota
	stateReady
	stateError
	stateClosed
)

// qp is a queue pair. Its three locks stand for the three engines that a
// device has for it: requester (sq), responder (resp) and the doorbell of the
// receive queue (rq). They are taken in that order; a goroutine holds at most
// one sq and one resp, the latter of either end. It has fields for all three, and a method
// for each step of theirs.
type qp struct {
	dom    *domain
	node   *node
	net    *Network
	cfg    fabric.QPConfig
	sendCQ *cq
	recvCQ *cq
	num    uint32
	psn    uint32

	state  atomic.Uint32      // changed with resp and rq held
	peer   atomic.Pointer[qp] // found at the first message
	remote fabric.Address     // written once, before state becomes ready
	timing fabric.Timing

	sq       sync.Mutex
	posted   uint64        // send requests taken so far
	released atomic.Uint64 // send requests whose slots are free again
	pending  []work        // taken but not carried out: never empty without a pump running
	pumping  bool
	sent     Counters

	resp  sync.Mutex
	head  uint64 // next receive to use
	recvd Counters

	rq         sync.Mutex
	ring       []fabric.RecvWR
	tail       atomic.Uint64 // receives posted so far; written with rq held
	rqReleased atomic.Uint64 // receives whose completions were polled
	rnrWaiter  *qp           // sender to wake at the next receive

	wake  chan struct{} // one token: the pump has something to look at
	pumps sync.WaitGroup
}

func newQP(d *domain, cfg fabric.QPConfig, send, recv *cq) *qp {
	size := 1
	for size < cfg.MaxRecv {
		size *= 2
	}
	q := &qp{
		dom: d, node: d.dev.node, net: d.dev.net,
		cfg: cfg, sendCQ: send, recvCQ: recv,
		psn:  rand.Uint32() & 0xffffff,
		ring: make([]fabric.RecvWR, size),
		wake: make(chan struct{}, 1),
	}
	q.net.add(q)
	return q
}

// Num implements fabric.QP.
func (q *qp) Num() uint32 { return q.num }

// Address implements fabric.QP.
func (q *qp) Address() fabric.Address {
	return fabric.Address{GID: q.node.gid, QPN: q.num, PSN: q.psn, MTU: q.net.mtu}
}

// errorf says what was being done to the queue pair. The cause comes last.
func (q *qp) errorf(doing string, err error) error {
	return fmt.Errorf("%s queue pair %#x of %s: %w", doing, q.num, q.node.name, err)
}

// Connect implements fabric.QP.
func (q *qp) Connect(remote fabric.Address, t fabric.Timing) error {
	const doing = "connecting"
	t = t.WithDefaults()
	var wrong error
	switch {
	case remote.QPN == 0 || remote.QPN > 0xffffff:
		wrong = fmt.Errorf("remote queue pair number %#x is not of 1 to 24 bits", remote.QPN)
	case remote.PSN > 0xffffff:
		wrong = fmt.Errorf("remote packet sequence number %#x has more than 24 bits", remote.PSN)
	case !validMTU(remote.MTU):
		wrong = fmt.Errorf("remote MTU %d is not 256, 512, 1024, 2048 or 4096", remote.MTU)
	case t.Timeout > 31:
		wrong = fmt.Errorf("timeout %d is over 31", t.Timeout)
	case t.RetryCount > 7:
		wrong = fmt.Errorf("retry count %d is over 7", t.RetryCount)
	case t.RNRRetry > 7:
		wrong = fmt.Errorf("receiver-not-ready retry count %d is over 7", t.RNRRetry)
	case t.MinRNRTimer > 31:
		wrong = fmt.Errorf("receiver-not-ready timer %d is over 31", t.MinRNRTimer)
	}
	if wrong != nil {
		return q.errorf(doing, fmt.Errorf("%w: %w", wrong, unix.EINVAL))
	}
	if !q.net.hasGID(remote.GID) {
		return q.errorf(doing, fmt.Errorf("nobody answers for GID %x: %w", remote.GID, unix.ETIMEDOUT))
	}
	q.sq.Lock()
	defer q.sq.Unlock()
	q.resp.Lock()
	defer q.resp.Unlock()
	q.rq.Lock()
	defer q.rq.Unlock()
	switch q.state.Load() {
	case stateClosed:
		return q.errorf(doing, net.ErrClosed)
	case stateReady:
		return q.errorf(doing, fmt.Errorf("it is connected already: %w", unix.EINVAL))
	case stateError:
		return q.errorf(doing, fmt.Errorf("it is in the error state: %w", unix.EINVAL))
	}
	q.remote, q.timing = remote, t
	q.state.Store(stateReady)
	return nil
}

func validMTU(mtu int) bool {
	switch mtu {
	case 256, 512, 1024, 2048, 4096:
		return true
	}
	return false
}

// other returns the queue pair at the far end, or nil if there is none.
func (q *qp) other() *qp {
	if p := q.peer.Load(); p != nil {
		return p
	}
	p := q.net.lookup(q.remote.GID, q.remote.QPN)
	if p != nil {
		q.peer.Store(p)
	}
	return p
}

// answers reports whether q, in whatever state, takes messages of from. q.resp
// is held.
func (q *qp) answers(from *qp) bool {
	return q.state.Load() == stateReady &&
		q.remote.QPN == from.num && q.remote.GID == from.node.gid &&
		q.cfg.Transport == from.cfg.Transport &&
		q.remote.PSN == from.psn && from.remote.PSN == q.psn
}

// cutOff reports whether no packet gets from q to p.
func (q *qp) cutOff(p *qp) bool {
	return q.node != p.node && (q.node.cut.Load() || p.node.cut.Load())
}

// kick has the pump look at the queue again, if it is running.
func (q *qp) kick() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// Fail implements fabric.QP.
func (q *qp) Fail() error {
	q.resp.Lock()
	closed := q.state.Load() == stateClosed
	if !closed {
		q.enterError()
	}
	q.resp.Unlock()
	if closed {
		return q.errorf("failing", net.ErrClosed)
	}
	q.sq.Lock()
	q.flushPending()
	q.sq.Unlock()
	return nil
}

// Failed implements fabric.QP.
func (q *qp) Failed() (bool, error) {
	s := q.state.Load()
	if s == stateClosed {
		return false, q.errorf("querying", net.ErrClosed)
	}
	return s == stateError, nil
}

// enterError moves the queue pair to the error state and flushes its receives;
// q.resp is held. Requests in the send queue are left to whoever holds q.sq:
// the caller, the next post, or the pump, which is told.
func (q *qp) enterError() {
	q.rq.Lock()
	if q.state.Load() < stateError {
		q.state.Store(stateError)
		q.flushReceives()
	}
	q.wakeSender()
	q.rq.Unlock()
	q.kick()
}

// flushReceives completes all posted receives; q.resp and q.rq are held.
func (q *qp) flushReceives() {
	for ; q.head != q.tail.Load(); q.head++ {
		q.recvd.Flushes++
		q.pushRecv(&fabric.Completion{ID: q.receive(q.head).ID, Status: fabric.StatusWRFlushErr}, false)
	}
}

// wakeSender has a sender that waits for a receive try again; q.rq is held.
func (q *qp) wakeSender() {
	if s := q.rnrWaiter; s != nil {
		q.rnrWaiter = nil
		s.kick()
	}
}

func (q *qp) receive(i uint64) *fabric.RecvWR { return &q.ring[i&uint64(len(q.ring)-1)] }

func (q *qp) pushRecv(wc *fabric.Completion, solicited bool) {
	wc.QPN = q.num
	q.recvCQ.push(&cqe{wc: *wc, qp: q}, solicited)
}

// Close implements fabric.QP. It never fails.
func (q *qp) Close() error {
	q.resp.Lock()
	q.rq.Lock()
	if q.state.Load() == stateClosed {
		q.rq.Unlock()
		q.resp.Unlock()
		return nil
	}
	q.state.Store(stateClosed)
	q.wakeSender()
	q.rq.Unlock()
	q.resp.Unlock()

	q.sq.Lock()   // whoever had it has finished; the next one sees the state
	q.sq.Unlock() //nolint:staticcheck // only the wait is wanted
	q.kick()
	q.pumps.Wait()

	q.sendCQ.purge(q)
	if q.recvCQ != q.sendCQ {
		q.recvCQ.purge(q)
	}
	q.dropWindows()
	q.node.mu.Lock()
	c := q.counters()
	q.node.past.add(&c)
	q.node.mu.Unlock()
	q.net.remove(q)
	q.dom.mu.Lock()
	delete(q.dom.qps, q)
	q.dom.mu.Unlock()
	return nil
}

// dropWindows unbinds what was bound to the queue pair, whose keys are of no
// use any more.
func (q *qp) dropWindows() {
	q.dom.mu.Lock()
	windows := keysOf(q.dom.windows)
	q.dom.mu.Unlock()
	q.net.keys.Lock()
	defer q.net.keys.Unlock()
	for _, w := range windows {
		if w.qp == q {
			w.detach()
		}
		if w.askedQP == q {
			w.forget()
		}
	}
}
