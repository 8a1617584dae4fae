package vhostuser

import (
	"fmt"
	"runtime/debug"
	"time"

	"github.com/splitnic/splitnic/vnet"
)

const (
	// lendFrom is from how many bytes on a frame is lent: to lend one costs as much as to
	// copy that many (BenchmarkTransmit), as its chain is given back by itself.
	lendFrom = 16 << 10
	// lendHead is how much of a frame that is lent is copied: all that anybody judges it by.
	lendHead = 256
	// lendTime is how long a front end waits at most until what it has lent is back: longer
	// than a session with a peer that is dead lasts.
	lendTime = 3 * time.Second
)

// errHeld is for a front end whose frames are not sent within lendTime.
var errHeld = fmt.Errorf("buffers of the front end are still being sent after %v", lendTime)

// borrower is who can send frames from where they lie.
type borrower struct {
	lent []vnet.Lent // of the operations
	keys *vnet.Keys
}

// Memory implements messaging.LendingPort.
func (q *Queue) Memory() (m *vnet.Memory, changed <-chan struct{}) {
	q.d.mu.Lock()
	defer q.d.mu.Unlock()
	return q.d.memory, q.d.heard
}

// Registered implements messaging.LendingPort.
func (q *Queue) Registered(bytes int64) { q.d.note(func(s *Status) { s.Registered += bytes }) }

// NotRegistered implements messaging.LendingPort.
func (q *Queue) NotRegistered(why error) {
	q.d.note(func(s *Status) {
		s.NotRegistered = ""
		if why != nil {
			s.NotRegistered = why.Error()
		}
	})
}

// ReadLent implements messaging.LendingPort.
//
// borrowed: ops with their slots, and lent, for the call.
func (q *Queue) ReadLent(ops []vnet.ReadOp, lent []vnet.Lent, keys *vnet.Keys) int {
	q.to = borrower{lent: lent, keys: keys}
	return q.readFor(ops, &q.to)
}

// OnRecall implements messaging.LendingPort.
func (q *Queue) OnRecall(fn func()) {
	q.lendMu.Lock()
	defer q.lendMu.Unlock()
	q.recall = fn
}

// Return implements messaging.LendingPort. Those of one ring that follow each other are
// given back in one go.
func (q *Queue) Return(loans []vnet.Loan) {
	for len(loans) > 0 {
		n := 1
		for n < len(loans) && loans[n].Ring == loans[0].Ring && loans[n].Memory == loans[0].Memory {
			n++
		}
		q.d.rings[loans[0].Ring].giveBack(loans[:n])
		if loans[0].Memory.Lend(-n) == 0 {
			select {
			case q.d.returned <- struct{}{}:
			default: // whoever waits looks anyway
			}
		}
		loans = loans[n:]
	}
}

// Fetch implements messaging.LendingPort.
//
// borrowed: op with its slot, and l, for the call.
func (q *Queue) Fetch(op *vnet.ReadOp, l *vnet.Lent) {
	if !fetch(op, l) {
		op.Frame, op.Err = nil, vnet.ErrInvalid
		v := q.d.rings[l.Loan.Ring]
		v.mu.Lock()
		if v.ring != nil && v.epoch == l.Loan.Epoch {
			v.fail(errTruncated)
		}
		v.mu.Unlock()
	}
	l.Pieces = l.Pieces[:0]
	q.Return([]vnet.Loan{l.Loan})
}

// fetch copies pieces behind the beginning of a frame, and reports whether they were
// there.
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

// lend is load for a frame that may be left where it lies but for its beginning. It is
// copied if it is short, is to be finished here, lies in too many places or in memory that
// is not registered, or has to be given back soon. Its chain is not given back.
func (v *vring) lend(op *vnet.ReadOp, l *vnet.Lent, keys *vnet.Keys, allowed vnet.Offloads) (lent bool, err error) {
	r := v.ring.base()
	l.Pieces = l.Pieces[:0]
	size := r.chain.size - uint64(v.header) + vnet.HdrLen
	if r.chain.size < v.d.lendFrom || size > vnet.MaxFrame || size > uint64(len(op.Slot)) || keys.Memory != r.mem.shared ||
		v.d.recalled.Load() {
		return false, nil
	}
	head := op.Slot[:lendHead]
	if _, err := r.load(head[:vnet.HdrLen], 0); err != nil || wants(head)&^allowed != 0 {
		return false, err
	}
	behind := v.header + lendHead - vnet.HdrLen
	if ok, err := r.pieces(l, behind, keys); !ok || err != nil {
		l.Pieces = l.Pieces[:0]
		return false, err
	}
	if _, err := r.load(head[vnet.HdrLen:], v.header); err != nil {
		l.Pieces = l.Pieces[:0]
		return false, err
	}
	op.Frame, op.Err = head, nil
	l.Size = int(size)
	l.Loan = vnet.Loan{
		Memory: keys.Memory, Ring: uint32(v.number), Epoch: v.epoch, Chain: v.first + uint32(len(v.held)),
	}
	keys.Memory.Lend(1)
	return true, nil
}

// pieces finds where the chain's bytes lie, from skip on, and reports whether there is
// room for all of these pieces and a device can read them. What lies side by side is one.
func (r *common) pieces(l *vnet.Lent, skip int, keys *vnet.Keys) (ok bool, err error) {
	for _, b := range r.chain.bufs {
		if skip >= int(b.len) {
			skip -= int(b.len)
			continue
		}
		b.addr += uint64(skip)
		b.len -= uint32(skip)
		skip = 0
		for b.len > 0 {
			p := r.mem.at(b.addr, b.len, &r.hint)
			if len(p) == 0 {
				return false, errAddress(b)
			}
			key := keys.Keys[r.hint]
			if !key.Known {
				return false, nil
			}
			if !l.Extend(p, key.LKey) {
				return false, nil
			}
			b.addr += uint64(len(p))
			b.len -= uint32(len(p))
		}
	}
	return len(l.Pieces) > 0, nil
}

// heldChain is one that is lent, or comes behind one in its ring: chains are given back in
// order, so that another process finds by what was given back which ones were not
// (newSplit).
type heldChain struct {
	used
	done bool
}

// hold has the chain that was taken last be given back, at once if it is done with and
// nothing before it is held.
func (v *vring) hold(done bool) {
	c := &v.ring.base().chain
	u := used{id: c.id, slots: c.slots}
	if done && len(v.held) == 0 {
		v.ring.put(u)
		return
	}
	v.held = append(v.held, heldChain{u, done})
}

// giveBack gives chains back to the driver that were lent, unless the ring is another one
// by now.
func (v *vring) giveBack(loans []vnet.Loan) {
	v.mu.Lock()
	defer v.leave(debug.SetPanicOnFault(true))
	if v.ring == nil {
		return
	}
	for i := range loans {
		if l := &loans[i]; l.Epoch == v.epoch {
			v.held[l.Chain-v.first].done = true
		}
	}
	n := 0
	for ; n < len(v.held) && v.held[n].done; n++ {
		v.ring.put(v.held[n].used)
	}
	v.held = v.held[:copy(v.held, v.held[n:])]
	v.first += uint32(n)
	v.publish()
}

// recall has all that was lent of m come back, and nothing be lent until recalled is
// cleared.
func (d *Device) recall(m *memory) error {
	d.recalled.Store(true)
	for _, v := range d.rings {
		v.mu.Lock()   // until a burst is over that did not know
		v.mu.Unlock() //nolint:staticcheck // nothing is to be done
	}
	if m.shared.Lend(0) == 0 {
		return nil
	}
	for _, q := range d.queues {
		q.lendMu.Lock()
		if q.recall != nil {
			q.recall()
		}
		q.lendMu.Unlock()
	}
	late := time.NewTimer(lendTime)
	defer late.Stop()
	for m.shared.Lend(0) != 0 {
		select {
		case <-d.returned:
		case <-late.C:
			return errHeld
		}
	}
	return nil
}
