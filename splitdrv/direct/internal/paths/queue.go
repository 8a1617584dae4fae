package paths

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/vnet"
)

// queue is a queue of the netdevice. One reader at a time has the right to read it, and
// reads the frames of all readers.
type queue struct {
	shared *shared
	number int
	port   messaging.Port
	lends  messaging.ZeroCopyPort // port, if it is one
	fd     int
	uplink *reader

	mu     sync.Mutex             // held while the queue is read; guards the fields up to missed
	reader atomic.Pointer[reader] // reader with the right to read; changed under mu
	// free is true if the reader has not come back in time and no other reader wanted the
	// right. The first one that wants it gets it. Changed under mu.
	free   atomic.Bool
	broken bool // a read failed, which the uplink has to report
	moving moving
	pace   pace

	armed  bool // the timer runs
	timer  *time.Timer
	missed uint32 // reader.releases when the timer was started

	writing sync.Mutex
}

// moving counts consecutive reads whose frames were all for the same other reader.
type moving struct {
	to    *reader
	reads int
}

const (
	// movesAfter is the number of such reads after which the right to read moves to that
	// reader. Alternating frames of several readers do not move it.
	movesAfter = 4
	// slowest bounds the delay for a reader that has kept others waiting. Each time doubles
	// the number of reads, and the time for which that holds, up to so many times.
	slowest = 8
	// grace is for how long a reader may read no frames before another one gets the right. A
	// sender frequently lacks credits for a short time, even if its peer is fast.
	grace = time.Millisecond
	// A reader can come back within the grace each time, and then read a single frame: its
	// peer determines how many credits it has. While the queue is not empty and the reader
	// lacks something again and again, it has to read at least leastFrames or leastBytes in
	// each time patience. At that pace, frames behind a full queue of the default length wait
	// for less than 100 ms.
	patience    = 16 * grace
	leastFrames = 96
	leastBytes  = 320 << 10
)

// pace is how much a reader has read since it first lacked something to read more, while the
// queue was not empty.
type pace struct {
	since         time.Time // zero: it has lacked nothing
	frames, bytes int
}

// read records frames that were read. dry reports that the queue is empty.
func (p *pace) read(ops []vnet.ReadOp, dry bool) {
	switch {
	case p.since.IsZero():
	case dry:
		*p = pace{}
	default:
		p.frames += len(ops)
		for i := range ops {
			p.bytes += len(ops[i].Frame)
		}
	}
}

// lacks records that the reader lacks something now, and reports whether it is too slow.
func (p *pace) lacks(now time.Time) (slow bool) {
	switch {
	case p.since.IsZero():
	case now.Sub(p.since) < patience:
		return false
	default:
		slow = p.frames < leastFrames && p.bytes < leastBytes
	}
	*p = pace{since: now}
	return slow
}

// borrower has the loans of a read. If keys is nil, frames are copied.
type borrower struct {
	lent []vnet.Lent
	keys *vnet.Keys
}

// saw records a read whose frames were all for to, or for several readers if to is nil. It
// reports whether the right to read moves to to.
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

// read reads the netdevice's queue for r, which has the right to read it, or gets the right
// if it is free. It passes the frames of other readers to them. dry reports that the queue is
// empty. Frames are lent only while there are no direct paths.
func (q *queue) read(r *reader, ops []vnet.ReadOp, to *borrower) (n int, dry bool) {
	for {
		n, dry, full := q.readFor(r, ops, to)
		if full == nil {
			return n, dry
		}
		q.shared.giveUp(full) // takes the locks of all queues
	}
}

// readFor is read, unless there is no room for frames of a path that waits for its markers,
// which it returns: then nothing is read.
func (q *queue) readFor(r *reader, ops []vnet.ReadOp, to *borrower) (n int, dry bool, full *route) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.reader.Load() != r && (!q.free.Load() || !r.may() || !q.give(r)):
		return 0, true, nil
	case r.ring.ready.Load():
		return 0, false, nil // the frames in the ring come first
	case q.free.Load():
		q.free.Store(false)
	}
	t := q.shared.table.Load()
	if t != nil {
		room, full := t.room()
		if room == 0 {
			return 0, false, full
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
		// A direct path does not end because the netdevice fails. The uplink reports it.
		q.broken = true
		q.give(q.uplink)
		q.uplink.wake()
		n, dry = n-1, true
	}
	q.pace.read(ops[:n], dry)
	if t == nil {
		q.learn(ops[:n])
		return n, dry, nil
	}
	return q.sort(r, t, ops[:n]), dry, nil
}

// learn records the flows in the queue, in case there is a peer again.
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

// final reports whether err concerns the port, and not a single frame.
func final(err error) bool {
	switch err {
	case nil, errAgain, vnet.ErrTooLong, vnet.ErrInvalid, vnet.ErrFiltered:
		return false
	}
	return true
}

// sort keeps the frames for r in ops, and returns their number. It passes the others to
// their readers.
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

// give moves the right to read to another reader, and reports whether that was possible.
func (q *queue) give(to *reader) bool {
	q.moving, q.pace = moving{}, pace{}
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
	// Wake the new reader, because epoll(7) may not report frames that were already in the
	// queue. If the queue is full, no further frame raises an event.
	to.wake()
	return true
}

// handOver moves the right to another reader that wants it: preferably to the path through
// the I/O unit. If none wants it, the queue is free for the first one that does.
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

// released is called when r, which had the right to read, stops reading for now. A direct
// path that is too slow loses the right.
func (q *queue) released(r *reader) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if now := time.Now(); !r.uplink && q.reader.Load() == r && q.pace.lacks(now) {
		q.pace = pace{}
		r.slow.Store(slowest)
		r.until.Store(now.Add(grace << slowest).UnixNano())
		q.handOver()
		return
	}
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

// graceOver moves the right to another reader if the reader has not come back.
func (q *queue) graceOver() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.armed = false
	r := q.reader.Load()
	switch {
	case r.wants.Load():
		r.slow.Store(max(r.slow.Load()-1, 0))
	case r.releases.Load() != q.missed:
		q.arm() // the reader had come back, and has released again
	case !q.free.Load():
		if !r.uplink {
			n := min(r.slow.Load()+1, slowest)
			r.slow.Store(n)
			r.until.Store(time.Now().Add(grace << n).UnixNano())
		}
		q.handOver()
	}
}

// write writes frames to the netdevice's queue.
func (q *queue) write(ops []vnet.WriteOp) int {
	q.writing.Lock()
	defer q.writing.Unlock()
	return q.port.WriteFrames(ops)
}

// writeFD returns the descriptor that shows when frames can be written again.
func (q *queue) writeFD() int {
	if w, ok := q.port.(messaging.WriteFDer); ok {
		return w.WriteFD()
	}
	return q.port.FD()
}

// roomIsReadable reports whether writeFD is readable, and not writable, when there is room.
func (q *queue) roomIsReadable() bool {
	r, ok := q.port.(messaging.ReadablePort)
	return ok && r.RoomIsReadable()
}
