package fabrictest

import (
	"fmt"
	"math/rand/v2"

	"github.com/splitnic/splitnic/fabric"
)

var _ fabric.QP = (*qp)(nil)

func newQP(d *domain, cfg fabric.QPConfig, send, recv *cq) *qp {
	size := 1
	for size < cfg.MaxRecv {
		size *= 2
	}
	q := &qp{
		dom: d, node: d.dev.node, net: d.dev.net,
		cfg: cfg, sendCQ: send, recvCQ: recv,
		psn:  rand.Uint32() & 0xffffff,
		mtu:  int(d.dev.net.mtu.Load()),
		ring: make([]fabric.RecvWR, size),
		wake: make(chan struct{}, 1),
	}
	q.net.add(q)
	return q
}

// Num implements fabric.QP.
func (q *qp) Num() uint32 { return q.num }

// MaxInline implements fabric.QP.
func (q *qp) MaxInline() int { return q.cfg.MaxInline }

// Address implements fabric.QP.
func (q *qp) Address() fabric.Address {
	return fabric.Address{GID: q.node.gid, QPN: q.num, PSN: q.psn, MTU: q.mtu}
}

// errorf returns an error that names the operation, the queue pair and the cause.
func (q *qp) errorf(doing string, err error) error {
	return fmt.Errorf("%s queue pair %#x of %s: %w", doing, q.num, q.node.name, err)
}

// other returns the peer of q, or nil if it does not exist.
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

// answers reports whether q receives messages of from. q.resp is held.
func (q *qp) answers(from *qp) bool {
	return q.state.Load() == stateReady &&
		q.remote.QPN == from.num && q.remote.GID == from.node.gid &&
		q.cfg.Transport == from.cfg.Transport &&
		q.remote.PSN == from.psn && from.remote.PSN == q.psn
}

// cutOff reports whether packets from q to p are lost.
func (q *qp) cutOff(p *qp) bool {
	return q.node != p.node && (q.node.cut.Load() || p.node.cut.Load())
}

// tooLong reports whether a packet of the message is lost on the way.
func (q *qp) tooLong(w *work) bool {
	largest := q.node.largest.Load()
	return largest > 0 && int64(min(int(w.size), q.mtu, q.remote.MTU)) > largest
}

// kick wakes the pump, if it runs.
func (q *qp) kick() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// enterError moves q to the error state and flushes its receives. q.resp is held. The caller, the
// next post, or the pump flushes the send queue, which needs q.sq.
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

// flushReceives completes all posted receives. q.resp and q.rq are held.
func (q *qp) flushReceives() {
	for ; q.head != q.tail.Load(); q.head++ {
		q.recvd.Flushes++
		q.pushRecv(&fabric.Completion{ID: q.receive(q.head).ID, Status: fabric.StatusWRFlushErr}, false)
	}
}

// wakeSender wakes the sender that waits for a receive. q.rq is held.
func (q *qp) wakeSender() {
	if s := q.rnrWaiter; s != nil {
		q.rnrWaiter = nil
		s.kick()
	}
}

// raise raises the event of a failure, if the device has such events.
func (q *qp) raise(t fabric.EventType) {
	if q.net.adapter.FailureEvents {
		q.dom.dev.raise(fabric.Event{Type: t, QPN: q.num})
	}
}

func (q *qp) receive(i uint64) *fabric.RecvWR { return &q.ring[i&uint64(len(q.ring)-1)] }

func (q *qp) pushRecv(wc *fabric.Completion, solicited bool) {
	wc.QPN, wc.Status = q.num, q.net.adapter.says(wc.Status)
	q.recvCQ.push(&cqe{wc: *wc, qp: q}, solicited)
}
