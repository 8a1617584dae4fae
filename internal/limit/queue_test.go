package limit

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
)

// line is a Queue with the turns that were taken from it, by name.
type line struct {
	t *testing.T
	q *Queue[string]

	mu    sync.Mutex // guards order and turns: other goroutines begin turns
	order []string
	turns map[string]*Turn[string]
}

func newLine(t *testing.T, cfg QueueConfig) *line {
	return &line{t: t, q: NewQueue[string](cfg), turns: make(map[string]*Turn[string])}
}

// ask takes a turn under this name in a new goroutine.
func (l *line) ask(name string, groups ...string) {
	go func() {
		turn, err := l.q.Take(l.t.Context(), nil, groups...)
		if err != nil {
			l.t.Error(err)
			return
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.order = append(l.order, name)
		l.turns[name] = turn
	}()
	synctest.Wait()
}

// turn returns the turn with this name, which must have begun.
func (l *line) turn(name string) *Turn[string] {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.turns[name] == nil {
		l.t.Fatalf("%s has no turn; turns began in the order %v", name, l.order)
	}
	return l.turns[name]
}

// end ends turns in this order.
func (l *line) end(names ...string) {
	l.t.Helper()
	for _, name := range names {
		l.turn(name).End(0)
		synctest.Wait()
	}
}

// is expects these turns to have begun, in this order.
func (l *line) is(want ...string) {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Equal(l.order, want) {
		l.t.Fatalf("turns began in the order %v, want %v", l.order, want)
	}
}

// empty expects the queue to be empty.
func (l *line) empty() {
	l.t.Helper()
	if len(l.q.waiting) != 0 || len(l.q.groups) != 0 || l.q.working != 0 || l.q.later != nil {
		l.t.Errorf("left: %d wait, %v, %d work", len(l.q.waiting), l.q.groups, l.q.working)
	}
}

// TestQueueRotates has many callers of one group wait, and a few of others. It expects the
// groups to alternate.
func TestQueueRotates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, QueueConfig{AtOnce: 1, Each: 1})
		l.ask("first", "z")
		for i, group := range []string{"a", "a", "a", "b", "b", "c"} {
			l.ask(fmt.Sprint(group, i), group)
		}
		l.end("first")
		want := []string{"first", "a0", "b3", "c5", "a1", "b4", "a2"}
		for _, name := range want[1:] {
			l.end(name)
		}
		l.is(want...)
		l.empty()
		if turns, delayed := l.q.Counts(); turns != 7 || delayed != 6 {
			t.Errorf("%d turns, %d delayed", turns, delayed)
		}
	})
}

// TestQueueNests has narrow groups within wide ones. It expects the wide groups to alternate, and
// the narrow ones within each.
func TestQueueNests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, QueueConfig{AtOnce: 1, Each: 1})
		l.ask("first", "z", "z")
		for i := range 4 {
			l.ask(fmt.Sprint("flood", i), "wide", fmt.Sprint("narrow", i))
		}
		l.ask("again", "wide", "narrow0")
		l.ask("other", "beside", "narrow")
		want := []string{"first", "flood0", "other", "flood1", "flood2", "flood3", "again"}
		for _, name := range want {
			l.end(name)
		}
		l.is(want...)
		l.empty()
	})
}

// TestQueueOwners allows several turns at once, and fewer for one owner.
func TestQueueOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, QueueConfig{AtOnce: 4, Each: 2})
		for _, name := range []string{"a1", "a2", "a3", "a4"} {
			l.ask(name, "a")
		}
		l.is("a1", "a2") // the most turns of one owner
		l.ask("b1", "b")
		l.ask("b2", "b")
		l.ask("c1", "c")
		l.is("a1", "a2", "b1", "b2")
		l.end("a1")
		l.is("a1", "a2", "b1", "b2", "c1") // before the earlier ones of a
		l.end("a1")                        // again, without effect
		l.end("c1")
		l.is("a1", "a2", "b1", "b2", "c1", "a3")
		l.end("b1", "b2", "a2", "a3", "a4")
		l.empty()
	})
}

// TestQueueWork has turns use up the work time. It expects the next turn to begin when there is
// work time again.
func TestQueueWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const perSecond = 0.2
		work := rate.NewLimiter(perSecond*rate.Limit(time.Second), int(time.Second))
		l := newLine(t, QueueConfig{AtOnce: 1, Each: 1, Work: work})
		l.ask("a", "a")
		l.turn("a").End(time.Second) // all the work time
		l.ask("b", "b")
		l.is("a")
		time.Sleep(time.Microsecond)
		synctest.Wait()
		l.is("a", "b") // as soon as there is work time
		l.turn("b").End(2 * time.Second)
		began := time.Now()
		l.ask("c", "c")
		for range 2 { // other callers do not make c begin earlier
			time.Sleep(time.Second)
			l.ask("d", "d")
		}
		l.is("a", "b")
		time.Sleep(time.Minute)
		synctest.Wait()
		l.is("a", "b", "c")
		if owed := time.Since(began).Seconds() - 62; owed > 1e-3 {
			t.Error(owed)
		}
		l.end("c", "d", "d")
	})
}

// TestQueueGivenUp expects waiting callers to leave the queue when their context or connection
// ends.
func TestQueueGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, QueueConfig{AtOnce: 1, Each: 1})
		l.ask("a", "a")
		cause := errors.New("cause")
		canceled, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		gone := make(chan struct{})
		close(gone)
		for _, group := range []string{"a", "b"} {
			began := time.Now()
			late, cancel := context.WithDeadlineCause(t.Context(), began.Add(time.Second), os.ErrDeadlineExceeded)
			for _, tt := range []struct {
				ctx  context.Context
				gone <-chan struct{}
				want error
			}{{canceled, nil, cause}, {t.Context(), gone, net.ErrClosed}, {late, nil, os.ErrDeadlineExceeded}} {
				if _, err := l.q.Take(tt.ctx, tt.gone, group); !errors.Is(err, tt.want) {
					t.Errorf("%s: %v, want %v", group, err, tt.want)
				}
			}
			if waited := time.Since(began); waited != time.Second {
				t.Errorf("%s gave up after %v", group, waited)
			}
			cancel()
		}
		l.end("a")
		l.empty()
		if turns, delayed := l.q.Counts(); turns != 1 || delayed != 6 {
			t.Errorf("%d turns, %d delayed", turns, delayed)
		}
	})
}
