package limit

import (
	"context"
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Queue makes callers wait for their turn to work. QueueConfig limits how many callers work
// at a time, how many of these have the same owner, and how much processor time all of them
// use in the long run. Each caller belongs to groups. The widest groups take turns; within
// each of these the next narrower groups take turns, and so on. An owner with a thousand
// calls therefore delays its own calls only. A Queue may be used by several goroutines.
type Queue[G comparable] struct {
	cfg QueueConfig

	mu      sync.Mutex
	waiting []*Turn[G] // in order of arrival
	working int
	groups  map[G]*group
	turns   uint64      // number of turns that have begun
	delayed uint64      // number of turns that did not begin at once
	later   *time.Timer // runs until there is Work again; nil if it does not run
}

// QueueConfig has the limits of a Queue.
type QueueConfig struct {
	AtOnce int // largest number of callers that work at a time
	Each   int // largest number of these with the same owner, which is the narrowest group
	// Work limits the processor time, in nanoseconds, of all callers together; nil: no limit.
	// A turn may begin while there is any time left.
	Work *rate.Limiter
}

// Turn is a caller's place in a Queue.
type Turn[G comparable] struct {
	queue  *Queue[G]
	names  []G
	groups []*group
	began  chan struct{} // closed when the turn begins
	ended  bool
}

// group has the state of a group of callers. It exists as long as one of them waits or works.
type group struct {
	callers int    // that wait or work
	working int    // that work; counted only if the group is an owner
	served  uint64 // number of the latest turn of one of the callers
}

// NewQueue makes a Queue.
func NewQueue[G comparable](cfg QueueConfig) *Queue[G] {
	return &Queue[G]{cfg: cfg, groups: make(map[G]*group)}
}

// Take waits for the turn of a caller that belongs to groups, the widest first. If ctx is done
// before, Take returns the cause of ctx, and if gone is closed before, net.ErrClosed. The
// caller has to end the Turn that Take returns.
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

// enter adds a caller to the queue.
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

// End ends the turn. worked is the time for which the caller has worked. A second call does
// nothing.
func (t *Turn[G]) End(worked time.Duration) { t.queue.leave(t, worked, time.Now()) }

// leave removes a caller from the queue, whether the caller waits or works.
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
			spend(q.cfg.Work, now, int(worked))
		}
	}
	for i, g := range t.groups {
		if g.callers--; g.callers == 0 {
			delete(q.groups, t.names[i])
		}
	}
	q.advance(now)
}

// advance begins turns while the limits allow another one. The caller holds q.mu.
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

// resume calls advance when there is Work again.
func (q *Queue[G]) resume() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.later = nil
	q.advance(time.Now())
}

// next returns the index in waiting of the turn that begins next, or -1 if none may begin. It
// is the turn whose widest group has waited longest since its latest turn. If this is the same
// for several turns, the next narrower group decides, and finally the order of arrival. The
// caller holds q.mu.
func (q *Queue[G]) next() int {
	first := -1
	for i, t := range q.waiting {
		if t.owner().working < q.cfg.Each && (first < 0 || t.before(q.waiting[first])) {
			first = i
		}
	}
	return first
}

// owner returns the narrowest group of t.
func (t *Turn[G]) owner() *group { return t.groups[len(t.groups)-1] }

// before reports whether t is to begin before o because of their groups, regardless of the
// order of arrival.
func (t *Turn[G]) before(o *Turn[G]) bool {
	for i := range t.groups {
		if a, b := t.groups[i].served, o.groups[i].served; a != b {
			return a < b
		}
	}
	return false
}

// Counts returns how many turns have begun, and how many of the turns had to wait.
func (q *Queue[G]) Counts() (turns, delayed uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.turns, q.delayed
}
