package vhostuser

import (
	"runtime/debug"

	"github.com/splitnic/splitnic/vnet"
)

// Memory implements messaging.ZeroCopyPort.
func (q *Queue) Memory() (m *vnet.Memory, changed <-chan struct{}) {
	q.lender.mu.Lock()
	defer q.lender.mu.Unlock()
	return q.lender.memory, q.lender.changed
}

// Registered implements messaging.ZeroCopyPort.
func (q *Queue) Registered(bytes int64) {
	q.lender.mu.Lock()
	defer q.lender.mu.Unlock()
	q.lender.registered += bytes
}

// NotRegistered implements messaging.ZeroCopyPort.
func (q *Queue) NotRegistered(why error) {
	q.lender.mu.Lock()
	defer q.lender.mu.Unlock()
	q.lender.notRegistered = why
}

// ReadLent implements messaging.ZeroCopyPort.
//
// borrowed: ops with their slots, and lent, for the call.
func (q *Queue) ReadLent(ops []vnet.ReadOp, lent []vnet.Lent, keys *vnet.Keys) int {
	q.to = borrower{lent: lent, keys: keys}
	return q.readFor(ops, &q.to)
}

// OnRecall implements messaging.ZeroCopyPort.
func (q *Queue) OnRecall(fn func()) {
	q.lendMu.Lock()
	defer q.lendMu.Unlock()
	q.recall = fn
}

// Return implements messaging.ZeroCopyPort. Consecutive loans of one ring are returned to the driver
// together.
func (q *Queue) Return(loans []vnet.Loan) {
	for len(loans) > 0 {
		n := 1
		for n < len(loans) && loans[n].Ring == loans[0].Ring && loans[n].Memory == loans[0].Memory {
			n++
		}
		q.lender.rings[loans[0].Ring].giveBack(loans[:n])
		if loans[0].Memory.Lend(-n) == 0 {
			select {
			case q.lender.returned <- struct{}{}:
			default: // a signal is pending already
			}
		}
		loans = loans[n:]
	}
}

// Fetch implements messaging.ZeroCopyPort.
//
// borrowed: op with its slot, and l, for the call.
func (q *Queue) Fetch(op *vnet.ReadOp, l *vnet.Lent) {
	if !fetch(op, l) {
		op.Frame, op.Err = nil, vnet.ErrInvalid
		v := q.lender.rings[l.Loan.Ring]
		v.mu.Lock()
		if v.ring != nil && v.epoch == l.Loan.Epoch {
			v.fail(errTruncated)
		}
		v.mu.Unlock()
	}
	l.Pieces = l.Pieces[:0]
	q.Return([]vnet.Loan{l.Loan})
}

// fetch appends the pieces to the beginning of a frame. It returns false if their memory is gone.
func fetch(op *vnet.ReadOp, l *vnet.Lent) (ok bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			if _, is := p.(fault); !is {
				panic(p)
			}
		}
	}()
	frame := op.Slot[:len(op.Frame)]
	for _, p := range l.Pieces {
		frame = append(frame, p.Mem...)
	}
	op.Frame = frame
	return true
}
