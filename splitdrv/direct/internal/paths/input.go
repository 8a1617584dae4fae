package paths

import "github.com/splitnic/splitnic/vnet"

// input is the part of a port that reads, for one sender.
type input struct {
	*reader
	shared *shared
	queues []*queue // queues that the reader can get the right to read
	sent   *counts  // counters of a direct path; nil: the path through the I/O unit

	// Used by the sender only.
	to   borrower // loans of the current call
	turn int      // queue to be read next
	last int      // queue from which the last frames came
}

// skips bounds how often one ReadFrames reads frames that are only for others.
const skips = 8

func (r *input) FD() int { return r.ep }

// borrowed: ops and their slots, for the call.
func (r *input) ReadFrames(ops []vnet.ReadOp) int {
	if len(ops) == 0 {
		return 0
	}
	if !r.wants.Load() {
		r.wants.Store(true)
	}
	if r.idle.Load() {
		r.idle.Store(false)
	}
	r.event.Clear()
	for range skips {
		if n, from := r.ring.take(ops); n > 0 {
			r.last = from
			r.read(ops[:n])
			return n
		}
		n, dry := r.readQueues(ops)
		r.read(ops[:n])
		if dry && n < len(ops) {
			r.idle.Store(true)
			if !r.ring.ready.Load() {
				ops[n].Frame, ops[n].Err = nil, errAgain
				return n + 1
			}
			r.idle.Store(false)
		}
		if n > 0 {
			return n
		}
	}
	ops[0].Frame, ops[0].Err = nil, vnet.ErrFiltered
	return 1
}

// readQueues reads from one of the queues that the reader has the right to read. dry reports
// that all of them are empty.
func (r *input) readQueues(ops []vnet.ReadOp) (n int, dry bool) {
	for range r.queues {
		q := r.queues[r.turn]
		if r.turn++; r.turn == len(r.queues) {
			r.turn = 0
		}
		if q.reader.Load() != r.reader && !q.free.Load() {
			continue
		}
		if n, dry = q.read(r.reader, ops, &r.to); n > 0 || !dry {
			r.last = q.number
			return n, dry && r.rights.Load() == 1
		}
	}
	return 0, true
}

// read counts frames passed to the sender.
func (r *input) read(ops []vnet.ReadOp) {
	if r.sent != nil && len(ops) > 0 {
		r.sent.sent(ops)
	}
}

// Release implements messaging.SharedPort: others may read the queues until the next call of
// ReadFrames.
func (r *input) Release() {
	if !r.wants.Load() {
		return
	}
	r.releases.Add(1)
	r.wants.Store(false)
	r.idle.Store(false)
	if r.shared.table.Load() == nil {
		return // there are no direct paths
	}
	for _, q := range r.queues {
		if q.reader.Load() == r.reader {
			q.released(r.reader)
		}
	}
}
