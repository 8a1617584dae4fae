package messaging

import (
	"errors"
	"testing"
	"time"

	"github.com/splitnic/splitnic/fabric"
)

// countedQP counts the queries of a queue pair.
type countedQP struct {
	fabric.QP
	queries int
	failed  bool
}

func (q *countedQP) Failed() (bool, error) { q.queries++; return q.failed, nil }
func (q *countedQP) Num() uint32           { return 1 }

// TestRounds has many sessions queried, by more calls than there may be queries: there are at most
// ten in a second, one for each session in a second, and all have their turn.
func TestRounds(t *testing.T) {
	for _, sessions := range []int{1, 7, 40} {
		var r rounds
		var all []*countedQP
		for range sessions {
			m := &member{of: &r, fail: func(err error) { t.Error(err) }}
			for range 5 {
				q := &countedQP{}
				all, m.qps = append(all, q), append(m.qps, q)
			}
			r.members = append(r.members, m)
		}
		const seconds = 100
		now := time.Unix(1000, 0)
		calls, due := 0, make([]int, sessions)
		for tick := range seconds * int(time.Second/roundInterval) {
			for i, m := range r.members {
				if tick >= due[i] {
					calls++
					due[i] = tick + 1 + r.turn(m, now)
				}
			}
			now = now.Add(roundInterval)
		}
		total, least, most := 0, all[0].queries, 0
		for _, q := range all {
			total, least, most = total+q.queries, min(least, q.queries), max(most, q.queries)
		}
		if limit := seconds * min(10, sessions); total > limit || total < limit*9/10 || most-least > 1 {
			t.Errorf("%d sessions: %d queries in %d s, %d to %d of a queue pair", sessions, total, seconds, least, most)
		}
		if limit := seconds * (10 + sessions); calls > limit {
			t.Errorf("%d sessions: %d calls, at most %d", sessions, calls, limit)
		}
	}
}

// TestRoundsFind expects that the failure of a queue pair is found and told to its session.
func TestRoundsFind(t *testing.T) {
	var r rounds
	var failure error
	r.members = []*member{
		{of: &r, qps: []fabric.QP{&countedQP{}}, fail: func(err error) { t.Error(err) }},
		{of: &r, qps: []fabric.QP{&countedQP{}, &countedQP{failed: true}}, fail: func(err error) { failure = err }},
	}
	for i := range 4 {
		r.turn(r.members[0], time.Unix(1000+int64(i), 0))
	}
	if !errors.Is(failure, &fabric.WCError{Status: fabric.StatusWRFlushErr}) {
		t.Error(failure)
	}
}
