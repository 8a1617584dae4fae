package limit

import (
	"context"
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Queue has callers wait until it is their turn to work. So many work at a time,
// and of one owner fewer; Work bounds what they work in the long run. The groups
// that callers belong to are served in rotation: the widest in turn, in each of
// these the narrower ones, and so on. Whoever asks a thousand times waits for
// itself. It may be used by several goroutines.
type Queue[G comparable] struct {
	cfg QueueConfig

	mu      sync.Mutex
	waiting []*Turn[G] // in the order in which they came
	working int
	groups  map[G]*group
	turns   uint64      // that began
	delayed uint64      // that had to be waited for
	later   *time.Timer // until there is Work again; nil unless it runs
}

// QueueConfig is how a Queue serves.
type QueueConfig struct {
	AtOnce int // how many work at a time
	Each   int // of these those of one owner: its narrowest group
	// Work is a processor's time, in nanoseconds, that they have all together; nil:
	// as much as there is. A turn may begin while there is any left.
	Work *rate.Limiter
}

// Turn is a caller's place in a Queue.
type Turn[G comparable] struct {
	queue  *Queue[G]
	names  []G
	groups []*group
	began  chan struct{} // closed when it begins
	ended  bool
}

// group counts those of its callers that wait or work. It exists as long as there
// are any.
type group struct {
	callers int
	working int
	served  uint64 // the latest turn of one of them
}

// NewQueue makes a Queue.
func NewQueue[G comparable](cfg QueueConfig) *Queue[G] {
	return &Queue[G]{cfg: cfg, groups: make(map[G]*group)}
}

// Take waits for the turn of a caller that belongs to groups, the widest first:
// until ctx is done, with its cause, or gone, with net.ErrClosed. Without an error,
// the Turn has to be ended.
func (q *Queue[G]) Take(ctx context.Context, gone <-chan struct{}, groups ...G) (*Turn[G], error) {
	t := q.enter(groups)
	var err error
	select {
	case <-t.began:
		return t, nil
	default:
	}
	select {
	case <-t.began:
		return t, nil
	case <-gone:
		err = net.ErrClosed
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	t.End(0)
	return nil, err
}

// enter puts a caller into the queue.
func (q *Queue[G]) enter(groups []G) *Turn[G] {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := &Turn[G]{queue: q, names: groups, began: make(chan struct{})}
	for _, name := range groups {
		g := q.groups[name]
		if g == nil {
			g = new(group)
			q.groups[name] = g
		}
		g.callers++
		t.groups = append(t.groups, g)
	}
	q.waiting = append(q.waiting, t)
	q.advance(time.Now())
	if slices.Contains(q.waiting, t) {
		q.delayed++
	}
	return t
}

// End ends the turn, in which the caller has worked so long. It does nothing the
// second time.
func (t *Turn[G]) End(worked time.Duration) { t.queue.leave(t, worked, time.Now()) }

// leave takes a caller out of the queue, whether it waits or works.
func (q *Queue[G]) leave(t *Turn[G], worked time.Duration, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if t.ended {
		return
	}
	t.ended = true
	if i := slices.Index(q.waiting, t); i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	} else {
		q.working--
		t.owner().working--
		if q.cfg.Work != nil {
			Spend(q.cfg.Work, now, int(worked))
		}
	}
	for i, g := range t.groups {
		if g.callers--; g.callers == 0 {
			delete(q.groups, t.names[i])
		}
	}
	q.advance(now)
}

// advance lets turns begin while there may be another one. The caller holds q.mu.
func (q *Queue[G]) advance(now time.Time) {
	for q.later == nil && q.working < q.cfg.AtOnce {
		next := q.next()
		if next < 0 {
			return
		}
		if w := q.cfg.Work; w != nil && w.TokensAt(now) <= 0 {
			q.later = time.AfterFunc(until(w, now, 0), q.resume)
			return
		}
		t := q.waiting[next]
		q.waiting = slices.Delete(q.waiting, next, next+1)
		q.working++
		t.owner().working++
		q.turns++
		for _, g := range t.groups {
			g.served = q.turns
		}
		close(t.began)
	}
}

// resume goes on when there is Work again.
func (q *Queue[G]) resume() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.later = nil
	q.advance(time.Now())
}

// next is the index of whose turn may begin next, or -1: of those whose groups have
// waited longest since their latest turns, the widest first, the first. The caller
// holds q.mu.
func (q *Queue[G]) next() int {
	first := -1
	for i, t := range q.waiting {
		if t.owner().working < q.cfg.Each && (first < 0 || t.before(q.waiting[first])) {
			first = i
		}
	}
	return first
}

// owner is the narrowest group of t.
func (t *Turn[G]) owner() *group { return t.groups[len(t.groups)-1] }

// before reports whether it is the turn of t before it is that of o, if both came
// at once.
func (t *Turn[G]) before(o *Turn[G]) bool {
	for i := range t.groups {
		if a, b := t.groups[i].served, o.groups[i].served; a != b {
			return a < b
		}
	}
	return false
}

// Counts are how many turns have begun, and how many had to be waited for.
func (q *Queue[G]) Counts() (turns, delayed uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.turns, q.delayed
}
