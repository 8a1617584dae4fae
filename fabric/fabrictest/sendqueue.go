package fabrictest

import (
	"time"

	"github.com/splitnic/splitnic/fabric"
)

// delay returns the larger delay of the two ends.
func (q *qp) delay(p *qp) time.Duration {
	d := q.node.delay.Load()
	if p != nil {
		d = max(d, p.node.delay.Load())
	}
	return time.Duration(d)
}

// finish completes a request that was executed or has failed. q.sq is held.
func (q *qp) finish(w *work, status fabric.Status) {
	if status != fabric.StatusSuccess {
		q.sent.Errors++
		q.pushSend(w, status)
		q.raise(fabric.EventQPFatal)
		q.resp.Lock()
		if q.state.Load() != stateClosed {
			q.enterError()
		}
		q.resp.Unlock()
		q.flushPending()
		return
	}
	if w.Flags&fabric.Signaled != 0 {
		q.pushSend(w, status)
	}
}

func (q *qp) pushSend(w *work, status fabric.Status) {
	e := cqe{qp: q, released: w.end}
	e.wc.ID, e.wc.Status, e.wc.QPN = w.ID, q.net.adapter.says(status), q.num
	if status == fabric.StatusSuccess {
		e.wc.Op = w.Op
		switch w.Op { // the completions of a device do not distinguish these
		case fabric.OpSendInv, fabric.OpSendImm:
			e.wc.Op = fabric.OpSend
		case fabric.OpWriteImm:
			e.wc.Op = fabric.OpWrite
		}
	}
	q.sendCQ.push(&e, false)
}

func (q *qp) flushSend(w *work) {
	if q.state.Load() == stateClosed {
		return
	}
	q.sent.Flushes++
	q.pushSend(w, fabric.StatusWRFlushErr)
}

// flushPending flushes the requests that wait in the send queue. q.sq is held.
func (q *qp) flushPending() {
	for i := range q.pending {
		q.flushSend(&q.pending[i])
		q.pending[i] = work{}
	}
	q.pending = q.pending[:0]
}
