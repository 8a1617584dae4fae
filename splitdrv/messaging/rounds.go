package messaging

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/ticker"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/control"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/core"
)

// queryInterval is the interval at which a session looks whether its queue pairs have failed,
// unless four keep-alive intervals are shorter.
const queryInterval = time.Second

// roundInterval is the interval between two calls that query queue pairs. A call can be a little
// late, so that the next one seems early.
const (
	roundInterval = 125 * time.Millisecond
	early         = roundInterval / 2
)

// rounds queries the queue pairs of many sessions in turn. Each query can be a command to the
// firmware of the device, which serves few in a second: however many sessions the process has, a
// call makes at most so many queries.
type rounds struct {
	most  int // queries in a call
	turns int // queue pairs of a session in its turn, of which it has at most one in its interval

	mu      sync.Mutex // guards the following fields, and those of members but task
	began   time.Time  // of the first call
	members []*member
	next    int
	last    time.Time
}

// queries has the rounds of a process: for queue pairs whose failure raises an event, which queries
// only back up, and for the others.
type queries struct {
	beats         ticker.Ticker
	heard, silent rounds
}

// newQueries returns rounds with at most 8 and 1000 queries in a second.
func newQueries() *queries {
	return &queries{heard: rounds{most: 1, turns: 1}, silent: rounds{most: 125, turns: math.MaxInt}}
}

// theQueries has all sessions of the process.
var theQueries = newQueries()

// member is a session whose queue pairs are queried in turn.
type member struct {
	of       *rounds
	task     *ticker.Task // calls turn
	qps      []fabric.QP
	interval time.Duration
	next     int
	left     int       // queue pairs that are not yet queried in this turn
	last     time.Time // when its last turn began
	fail     func(qp int, err error)
}

// add adds a session. fail is called with the error of a queue pair; it must not wait.
func (r *rounds) add(qps []fabric.QP, interval time.Duration, fail func(qp int, err error)) *member {
	m := &member{of: r, qps: qps, interval: interval, fail: fail}
	r.mu.Lock()
	r.members = append(r.members, m)
	r.mu.Unlock()
	return m
}

// leave removes the session. No query of it is under way afterwards.
func (m *member) leave() {
	if m == nil {
		return
	}
	m.task.Stop()
	m.of.mu.Lock()
	defer m.of.mu.Unlock()
	for i, x := range m.of.members {
		if x == m {
			m.of.members = append(m.of.members[:i], m.of.members[i+1:]...)
			if i < m.of.next {
				m.of.next--
			}
			return
		}
	}
}

// turn is called by the task of m. It returns how many of its next calls can be left out: the
// first member makes the queries of all, and the others only see whether they have become the
// first. They do so together, so that an idle process is woken seldom.
func (r *rounds) turn(m *member, now time.Time) (rest int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.began.IsZero() {
		r.began = now
	}
	wait := queryInterval - (now.Sub(r.began)+early)%queryInterval + early
	if len(r.members) > 0 && r.members[0] == m {
		wait = r.query(now)
	}
	return max(int((wait+early)/roundInterval)-1, 0)
}

// query makes the queries that are due, and returns the time until the next ones. r.mu is held.
func (r *rounds) query(now time.Time) time.Duration {
	if wait := roundInterval - now.Sub(r.last); wait > early {
		return wait
	}
	for range r.most {
		r.next %= len(r.members)
		m := r.members[r.next] // the one that has waited longest
		if m.left == 0 {
			if wait := m.interval - now.Sub(m.last); !m.last.IsZero() && wait > early {
				return wait
			}
			m.left, m.last = min(r.turns, len(m.qps)), now
		}
		r.last = now
		i := m.next % len(m.qps)
		m.next++
		if err := failed(m.qps[i]); err != nil {
			m.fail(i, err)
		}
		if m.left--; m.left == 0 {
			r.next++
		}
	}
	return roundInterval
}

// failed returns an error if qp is in the error state (ibv_query_qp(3)). Some devices do not say:
// there only completions, and the silence of the peer, show a failure.
func failed(qp fabric.QP) error {
	gone, err := qp.Failed()
	if errors.Is(err, fabric.ErrUnsupported) {
		return nil
	}
	if err != nil || !gone {
		return err
	}
	return &fabric.WCError{Status: fabric.StatusWRFlushErr, QPN: qp.Num()}
}

// watch ends the session if a queue pair has failed and no worker has noticed. A sleeping
// worker may not notice: Soft-RoCE of newer kernels raises no event for flushed receives,
// and no version of it flushes receives that are posted after the failure. The peer of a
// reliable channel notices when it sends. The peer of an unreliable channel never notices,
// and neither does a peer tell that has broken the queue pair on purpose. Each time it also
// binds the workers' threads again that the kernel has released, and looks whether the port
// still has the path MTU.
func (q *queries) watch(
	c *core.Session, keepAlive time.Duration, control *control.Channel, channels []*channel,
) (task *ticker.Task, queried *member) {
	qps := []fabric.QP{control.QP}
	for _, ch := range channels {
		qps = append(qps, ch.QP)
	}
	interval := min(queryInterval, 4*keepAlive)
	turns, most := &q.silent, interval
	if d, ok := c.Device.(interface{ Silent() bool }); ok && !d.Silent() {
		turns, most = &q.heard, queryInterval
	}
	queried = turns.add(qps, most, func(i int, err error) { c.EndLater(named(i, err)) })
	queried.task = q.beats.Every(roundInterval, func(t ticker.Tick) int { return turns.turn(queried, t.Now) })
	return q.beats.Every(interval, func(ticker.Tick) int {
		if c.Stopped.Load() {
			return ticker.MaxRest
		}
		c.Handlers.KeepBound()
		if err := c.Fits(); err != nil {
			c.EndLater(err)
		}
		return 0
	}), queried
}

// named returns err, the error of the queue pair of a channel. Number 0 is the control channel.
func named(number int, err error) error {
	if number == 0 {
		return fmt.Errorf("control channel: %w", err)
	}
	return fmt.Errorf("data channel %d: %w", number, err)
}
