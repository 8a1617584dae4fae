package paths

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/vnet"
)

// queue is one queue of the netdevice. It has one reader at a time, who reads for all.
type queue struct {
	shared *shared
	number int
	port   messaging.Port
	lends  messaging.ZeroCopyPort // port, if it is one
	fd     int
	uplink *reader

	mu     sync.Mutex             // of reading, and of what follows
	reader atomic.Pointer[reader] // who has the right to read; changed under mu
	// free is whether the reader has not come back in time and nobody else wanted the
	// right: who wants it first has it. Changed under mu.
	free   atomic.Bool
	broken bool // it is the uplink's to say so
	moving moving

	armed  bool // the timer runs
	timer  *time.Timer
	missed uint32 // reader.releases when it was armed

	writing sync.Mutex
}

// moving counts reads whose frames were all for one other than the reader.
type moving struct {
	to    *reader
	reads int
}

const (
	// movesAfter is after how many such reads the right goes there: frames of several
	// that alternate do not make it go to and fro.
	movesAfter = 4
	// slowest bounds how much longer that takes for who kept the others waiting: so many
	// times twice as many reads, or as many times twice the time for which it did.
	slowest = 8
	// grace is how long a reader may take no frames before another one gets the right.
	// A sender is out of credits again and again while its peer is as fast as can be.
	grace = time.Millisecond
)

// borrower is who is lent frames by a read; keys are nil if they are to be copied.
type borrower struct {
	lent []vnet.Lent
	keys *vnet.Keys
}

// saw enters a read whose frames were all for to, or for several if that is nil, and
// reports whether the right moves.
func (m *moving) saw(to, from *reader) bool {
	if to == nil || to == from {
		*m = moving{}
		return false
	}
	if to != m.to {
		*m = moving{to: to}
	}
	m.reads++
	if m.reads < movesAfter || m.reads < movesAfter<<to.slow.Load() && !to.forgiven() {
		return false
	}
	return to.wants.Load() && to.may()
}

// read is ReadFrames of the netdevice's queue by r, which has the right to it or
// takes it. It leaves the frames of others to them, and says whether there is no
// more for now. As long as there are no others, frames can be lent.
func (q *queue) read(r *reader, ops []vnet.ReadOp, to *borrower) (n int, dry bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.reader.Load() != r && (!q.free.Load() || !r.may() || !q.give(r)):
		return 0, true
	case r.ring.ready.Load():
		return 0, false // that was read before
	case q.free.Load():
		q.free.Store(false)
	}
	t := q.shared.table.Load()
	if t != nil {
		room := t.room()
		if room == 0 {
			return 0, true // who makes room wakes the reader
		}
		ops = ops[:min(len(ops), room)]
	}
	if t == nil && to.keys != nil {
		n = q.lends.ReadLent(ops, to.lent, to.keys)
	} else {
		n = q.port.ReadFrames(ops)
	}
	err := ops[n-1].Err
	if r.uplink && q.broken {
		q.broken = final(err)
	}
	switch {
	case err == errAgain:
		n, dry = n-1, true
	case !r.uplink && final(err):
		// The netdevice does not end with a direct path.
		q.broken = true
		q.give(q.uplink) // which makes it not free
		q.uplink.wake()
		n, dry = n-1, true
	}
	if t == nil {
		q.learn(ops[:n])
		return n, dry
	}
	return q.sort(r, t, ops[:n]), dry
}

// learn enters which flows are in the queue, if there may be a peer again.
func (q *queue) learn(ops []vnet.ReadOp) {
	if !q.shared.flows.used.Load() || q.shared.used.Load() == 1 {
		return
	}
	for i := range ops {
		if ops[i].Err == nil {
			q.shared.flows.learn(ops[i].Frame, q.number, false)
		}
	}
}

// final reports whether err is not about one frame.
func final(err error) bool {
	switch err {
	case nil, errAgain, vnet.ErrTooLong, vnet.ErrInvalid, vnet.ErrFiltered:
		return false
	}
	return true
}

// sort leaves the frames of r in ops, and returns their number. The others go to the
// readers that they are for.
func (q *queue) sort(r *reader, t *table, ops []vnet.ReadOp) (kept int) {
	var only *reader
	mixed := false
	for i := range ops {
		op, to := &ops[i], r
		if op.Err == nil {
			to = q.uplink
			if p := t.find(op.Frame); p != nil {
				q.shared.flows.learn(op.Frame, q.number, true)
				if p.state.routes() {
					to = p.reader
				}
			}
			mixed = mixed || only != nil && only != to
			only = to
		}
		if to != r {
			to.put(op.Frame, q.number)
			continue
		}
		if kept != i {
			ops[kept].Move(op)
		}
		kept++
	}
	if len(ops) > 0 && only != nil {
		if mixed {
			only = nil
		}
		if q.moving.saw(only, r) {
			q.give(only)
		}
	}
	return kept
}

// give gives somebody the right to read, and reports whether that could be done.
func (q *queue) give(to *reader) bool {
	q.moving = moving{}
	q.free.Store(false)
	from := q.reader.Load()
	if from == to {
		return true
	}
	if err := to.watch(q.fd, true); err != nil {
		q.shared.warn("read a queue for a direct path", q.number, err)
		return false
	}
	if err := from.watch(q.fd, false); err != nil {
		q.shared.warn("leave a queue to another path", q.number, err)
	}
	q.reader.Store(to)
	from.rights.Add(-1)
	to.rights.Add(1)
	// epoll(7) need not tell of frames that were there before: not of a descriptor that was
	// readable already when it was watched last, and a full netdevice gets no other frame.
	to.wake()
	return true
}

// handOver gives the right to somebody who wants it and is not the reader: the path
// through the I/O unit, if that does. If nobody does, who comes first has it.
func (q *queue) handOver() {
	from := q.reader.Load()
	if from != q.uplink && q.uplink.wants.Load() {
		q.give(q.uplink)
		return
	}
	others := !q.broken && q.number < int(q.shared.used.Load())
	if t := q.shared.table.Load(); t != nil && others {
		for _, p := range t.direct {
			if p.reader != from && p.reader.wants.Load() && q.give(p.reader) {
				return
			}
		}
	}
	if !from.may() {
		q.give(q.uplink)
	}
	q.free.Store(others)
}

// released is called when the reader takes no frames for now.
func (q *queue) released() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.arm()
}

func (q *queue) arm() {
	if q.armed || q.shared.ended.Load() {
		return
	}
	q.armed = true
	q.missed = q.reader.Load().releases.Load()
	if q.timer == nil {
		q.timer = time.AfterFunc(q.shared.grace, q.graceOver)
	} else {
		q.timer.Reset(q.shared.grace)
	}
}

// graceOver has another one read if the reader has not come back.
func (q *queue) graceOver() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.armed = false
	r := q.reader.Load()
	switch {
	case r.wants.Load():
		r.slow.Store(max(r.slow.Load()-1, 0))
	case r.releases.Load() != q.missed:
		q.arm() // it did, and went again
	case !q.free.Load():
		if !r.uplink {
			n := min(r.slow.Load()+1, slowest)
			r.slow.Store(n)
			r.until.Store(time.Now().Add(grace << n).UnixNano())
		}
		q.handOver()
	}
}

// write is WriteFrames of the netdevice's queue.
func (q *queue) write(ops []vnet.WriteOp) int {
	q.writing.Lock()
	defer q.writing.Unlock()
	return q.port.WriteFrames(ops)
}

// writeFD is what to wait at before a frame is written again.
func (q *queue) writeFD() int {
	if w, ok := q.port.(messaging.WriteFDer); ok {
		return w.WriteFD()
	}
	return q.port.FD()
}

// roomIsReadable reports whether writeFD is readable when there is room.
func (q *queue) roomIsReadable() bool {
	r, ok := q.port.(messaging.ReadablePort)
	return ok && r.RoomIsReadable()
}
