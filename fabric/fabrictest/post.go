package fabrictest

import (
	"fmt"
	"math"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/fabric"
)

// PostSend implements fabric.QP.
func (q *qp) PostSend(wrs []fabric.SendWR) (int, error) {
	if len(wrs) == 0 {
		return 0, nil
	}
	q.sq.Lock()
	defer q.sq.Unlock()
	for i := 0; i < len(wrs); {
		w, err := q.checkSend(wrs[i:])
		if err != nil {
			return i, q.errorf(fmt.Sprintf("posting send record %d of %d on", i+1, len(wrs)), err)
		}
		q.submit(&w)
		i += 1 + len(w.more)
	}
	return len(wrs), nil
}

var (
	errNotConnected = fmt.Errorf("it is not connected: %w", unix.EINVAL)
	errOpcode       = fmt.Errorf("not the opcode of a send request: %w", unix.EINVAL)
	errInline       = fmt.Errorf("inline data is longer than QP.MaxInline: %w", unix.EINVAL)
	errMoreLast     = fmt.Errorf("the last record of the call has the flag More: %w", unix.EINVAL)
	errMoreOf       = fmt.Errorf("the flag More with an opcode that sends no data: %w", unix.EINVAL)
	errNoReads      = fmt.Errorf("QPConfig.MaxRdAtomic is 0: %w", unix.EINVAL)
	errReadInline   = fmt.Errorf("a read is never inline: %w", unix.EINVAL)
	errPieces       = fmt.Errorf("the data of the request is in more pieces than QPConfig.MaxSGE: %w", unix.EINVAL)
	errSize         = fmt.Errorf("the pieces of the request have more than 4 GiB together: %w", unix.EINVAL)
)

// checkSend returns the first request of wrs, or an error if it cannot be posted. An
// invalidation is recorded as posted. q.sq is held.
func (q *qp) checkSend(wrs []fabric.SendWR) (work, error) {
	w := work{SendWR: wrs[0]}
	if q.refuses() { // a request before it in the same call can have failed
		return w, q.failedErr()
	}
	switch w.Op {
	case fabric.OpSend, fabric.OpSendInv, fabric.OpSendImm, fabric.OpWrite, fabric.OpWriteImm:
		if err := q.collect(&w, wrs); err != nil {
			return w, err
		}
		if w.Flags&fabric.Inline != 0 && int64(w.size) > int64(q.cfg.MaxInline) {
			return w, errInline
		}
		if no := q.net.adapter.NoSolicitedWrites; no != nil && w.Op == fabric.OpWrite && w.Flags&fabric.Solicited != 0 {
			return w, fmt.Errorf("a plain write that is solicited: %w", no)
		}
	case fabric.OpRead:
		switch {
		case q.cfg.MaxRdAtomic == 0:
			return w, errNoReads
		case w.Flags&fabric.More != 0:
			return w, errMoreOf
		case w.Flags&fabric.Inline != 0:
			return w, errReadInline
		}
		w.size = w.Len
	case fabric.OpLocalInv:
		if w.Flags&fabric.More != 0 {
			return w, errMoreOf
		}
		if err := q.checkSlot(); err != nil {
			return w, err
		}
		return w, q.unask(w.RKey)
	default:
		return w, errOpcode
	}
	return w, q.checkSlot()
}

// collect sets the pieces of w. Its first record is wrs[0].
func (q *qp) collect(w *work, wrs []fabric.SendWR) error {
	n, size := 1, uint64(w.Len)
	for ; wrs[n-1].Flags&fabric.More != 0; n++ {
		if n == q.cfg.MaxSGE {
			return errPieces
		}
		if n == len(wrs) {
			return errMoreLast
		}
		size += uint64(wrs[n].Len)
	}
	if size > math.MaxUint32 {
		return errSize
	}
	w.more, w.size = wrs[1:n], uint32(size)
	return nil
}

// refuses reports whether q takes no posts, because it has failed.
func (q *qp) refuses() bool { return q.net.adapter.StrictPosts != nil && q.state.Load() == stateError }

// failedErr returns the error of a post that q refuses because it has failed.
func (q *qp) failedErr() error { return fmt.Errorf("it has failed: %w", q.net.adapter.StrictPosts) }

func (q *qp) checkSlot() error { return q.checkSlots(1) }

// checkSlots returns an error if n requests cannot be posted.
func (q *qp) checkSlots(n uint64) error {
	switch q.state.Load() {
	case stateInit:
		return errNotConnected
	case stateClosed:
		return q.dom.dev.closedErr()
	}
	if q.posted-q.released.Load()+n > uint64(q.cfg.MaxSend) {
		return fabric.ErrQueueFull
	}
	return nil
}

// submit posts a checked request, and executes it at once if possible. q.sq is held.
func (q *qp) submit(w *work) {
	q.posted++
	w.end = q.posted
	if q.state.Load() != stateReady {
		q.flushPending()
		q.flushSend(w)
		return
	}
	p := q.other()
	held := q.node.late() || p != nil && p.node.late()
	late := q.net.adapter.LateInline && w.Flags&fabric.Inline != 0
	if len(q.pending) != 0 || held || late {
		d := q.delay(p)
		if late {
			d = max(d, time.Millisecond)
		}
		if d != 0 {
			w.due = time.Now().Add(d)
		}
		q.hold(w)
		return
	}
	status, o := q.execute(w)
	if o != done {
		q.hold(w)
		return
	}
	q.finish(w, status)
}

// PostRecv implements fabric.QP.
func (q *qp) PostRecv(wrs []fabric.RecvWR) (int, error) {
	q.rq.Lock()
	st := q.state.Load()
	if st == stateClosed {
		q.rq.Unlock()
		return 0, q.errorf("posting receives on", q.dom.dev.closedErr())
	}
	if q.refuses() {
		q.rq.Unlock()
		return 0, q.errorf("posting receives on", q.failedErr())
	}
	tail := q.tail.Load()
	limit := q.rqReleased.Load() + uint64(q.cfg.MaxRecv)
	taken := min(len(wrs), int(limit-tail))
	for i := range wrs[:taken] {
		*q.receive(tail) = wrs[i]
		tail++
	}
	q.tail.Store(tail)
	if taken != 0 {
		q.wakeSender()
	}
	q.rq.Unlock()
	if st == stateError {
		q.flushLate()
	}
	if taken < len(wrs) {
		return taken, q.errorf(fmt.Sprintf("posting receive %d of %d on", taken+1, len(wrs)), fabric.ErrQueueFull)
	}
	return taken, nil
}

// flushLate completes receives that were posted in the error state.
func (q *qp) flushLate() {
	q.resp.Lock()
	q.rq.Lock()
	if q.state.Load() == stateError {
		q.flushReceives()
	}
	q.rq.Unlock()
	q.resp.Unlock()
}
