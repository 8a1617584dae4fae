package messaging

import (
	"errors"
	"sync"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/ticker"
)

// queryInterval is the interval at which the device is asked for the state of the queue
// pairs, unless four keep-alive intervals are shorter.
const queryInterval = time.Second

// roundInterval is the interval between two queries of queue pairs of devices that raise events
// when one fails. Each query can be a command to the firmware; they are only the fall-back. All
// sessions of the process share them.
const roundInterval = 100 * time.Millisecond

// rounds queries the queue pairs of many sessions in turn: one queue pair of the next session at
// each call, and each session at most once in queryInterval.
type rounds struct {
	mu      sync.Mutex // guards the following fields, and those of members but task
	members []*member
	next    int
	last    time.Time
}

// member is a session whose queue pairs are queried in turn.
type member struct {
	of   *rounds
	task *ticker.Task // calls turn
	qps  []fabric.QP
	next int
	last time.Time
	fail func(error)
}

// theRounds has all sessions of the process with such devices.
var theRounds rounds

// add adds a session. fail is called with the error of a queue pair; it must not wait.
func (r *rounds) add(qps []fabric.QP, fail func(error)) *member {
	m := &member{of: r, qps: qps, fail: fail}
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
// first.
func (r *rounds) turn(m *member, now time.Time) (rest int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.members) == 0 || r.members[0] != m {
		return int(queryInterval/roundInterval) - 1
	}
	return max(int(r.query(now)/roundInterval)-1, 0)
}

// query makes the next query, if one is due, and returns the time until the next one. r.mu is
// held.
func (r *rounds) query(now time.Time) time.Duration {
	if wait := roundInterval - now.Sub(r.last); wait > 0 {
		return wait
	}
	r.next %= len(r.members)
	m := r.members[r.next] // the one that has waited longest
	if wait := queryInterval - now.Sub(m.last); !m.last.IsZero() && wait > 0 {
		return wait
	}
	r.next++
	r.last, m.last = now, now
	qp := m.qps[m.next%len(m.qps)]
	m.next++
	if err := failed(qp); err != nil {
		m.fail(err)
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
