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

// TestRounds has many sessions queried, which have begun at different times, by more calls than there
// may be queries: there are never more than there may be, all queue pairs have their turn, and the
// process is woken as seldom as that allows.
func TestRounds(t *testing.T) {
	const seconds, pairs, ticks = 100, 5, int(time.Second / roundInterval)
	for _, c := range []struct{ most, turns, sessions, want int }{ // want: queries in a second
		{1, 1, 1, 1}, {1, 1, 7, 7}, {1, 1, 40, ticks},
		{4, pairs, 1, pairs}, {4, pairs, 5, 5 * pairs}, {4, pairs, 40, 4 * ticks}, {200, pairs, 40, 40 * pairs},
	} {
		r := rounds{most: c.most, turns: c.turns}
		var all []*countedQP
		begin := func() {
			var qps []fabric.QP
			for range pairs {
				q := &countedQP{}
				all, qps = append(all, q), append(qps, q)
			}
			r.add(qps, queryInterval, func(_ int, err error) { t.Error(err) })
		}
		now := time.Unix(1000, 0)
		calls, wakes, due := 0, 0, make([]int, c.sessions)
		const warmUp = 10 * ticks // after which there are all sessions
		total := func() (n int) {
			for _, q := range all {
				n += q.queries
			}
			return n
		}
		for tick := range seconds * ticks {
			if tick < c.sessions {
				begin()
			}
			before, called := total(), calls
			for i, m := range r.members {
				if tick >= due[i] {
					calls++
					due[i] = tick + 1 + r.turn(m, now)
				}
			}
			if calls > called && tick >= warmUp {
				wakes++
			}
			if n := total() - before; n > c.most {
				t.Fatalf("%+v: %d queries at once", c, n)
			}
			now = now.Add(roundInterval - time.Millisecond + 2*time.Millisecond*time.Duration(tick%2))
		}
		least, most := all[0].queries, 0
		for _, q := range all {
			least, most = min(least, q.queries), max(most, q.queries)
		}
		if n, limit := total(), seconds*c.want; n > limit || n < limit*8/10 || most-least > 10 {
			t.Errorf("%+v: %d queries in %d s, %d to %d of a queue pair", c, n, seconds, least, most)
		}
		if limit := seconds * ((c.want+c.most-1)/c.most + 1); wakes > limit {
			t.Errorf("%+v: woken %d times in %d s", c, wakes, seconds)
		}
		if limit := seconds * (ticks + c.sessions); calls > limit {
			t.Errorf("%+v: %d calls, at most %d", c, calls, limit)
		}
	}
}

// TestRoundsFind expects that the failure of a queue pair is found and told to its session, with its
// channel.
func TestRoundsFind(t *testing.T) {
	for _, turns := range []int{1, 3} {
		r := rounds{most: 1, turns: turns}
		var failure error
		r.add([]fabric.QP{&countedQP{}}, queryInterval, func(_ int, err error) { t.Error(err) })
		r.add([]fabric.QP{&countedQP{}, &countedQP{failed: true}}, queryInterval, func(i int, err error) {
			if i != 1 {
				t.Errorf("channel %d: %v", i, err)
			}
			failure = err
		})
		for i := range 4 {
			r.turn(r.members[0], time.Unix(1000+int64(i), 0))
		}
		if !errors.Is(failure, &fabric.WCError{Status: fabric.StatusWRFlushErr}) {
			t.Error(failure)
		}
	}
}
