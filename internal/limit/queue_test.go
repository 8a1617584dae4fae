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

// line is a Queue, and those who have asked for a turn there, by name.
type line struct {
	t *testing.T
	q *Queue[string]

	mu    sync.Mutex // a turn that a timer gives begins without the test's doing
	order []string
	turns map[string]*Turn[string]
}

func newLine(t *testing.T, cfg QueueConfig) *line {
	return &line{t: t, q: NewQueue[string](cfg), turns: make(map[string]*Turn[string])}
}

// ask has somebody ask for a turn.
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

// turn is the turn that has begun under this name.
func (l *line) turn(name string) *Turn[string] {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.turns[name] == nil {
		l.t.Fatalf("%s has no turn; turns began in the order %v", name, l.order)
	}
	return l.turns[name]
}

// end has turns end, in order.
func (l *line) end(names ...string) {
	l.t.Helper()
	for _, name := range names {
		l.turn(name).End(0)
		synctest.Wait()
	}
}

// is says whose turns have begun, in order.
func (l *line) is(want ...string) {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Equal(l.order, want) {
		l.t.Fatalf("turns began in the order %v, want %v", l.order, want)
	}
}

// empty says that nothing is left.
func (l *line) empty() {
	l.t.Helper()
	if len(l.q.waiting) != 0 || len(l.q.groups) != 0 || l.q.working != 0 || l.q.later != nil {
		l.t.Errorf("left: %d wait, %v, %d work", len(l.q.waiting), l.q.groups, l.q.working)
	}
}

// TestQueueRotates has many of one group wait, and some of others.
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

// TestQueueNests has narrow groups take turns within wide ones.
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

// TestQueueOwners has several work at once, and of one owner fewer.
func TestQueueOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, QueueConfig{AtOnce: 4, Each: 2})
		for _, name := range []string{"a1", "a2", "a3", "a4"} {
			l.ask(name, "a")
		}
		l.is("a1", "a2") // as many as one owner may have
		l.ask("b1", "b")
		l.ask("b2", "b")
		l.ask("c1", "c")
		l.is("a1", "a2", "b1", "b2")
		l.end("a1")
		l.is("a1", "a2", "b1", "b2", "c1") // before those of a that came earlier
		l.end("a1")                        // which does nothing
		l.end("c1")
		l.is("a1", "a2", "b1", "b2", "c1", "a3")
		l.end("b1", "b2", "a2", "a3", "a4")
		l.empty()
	})
}

// TestQueueWork has turns use up the time that there is for them.
func TestQueueWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const perSecond = 0.2
		work := rate.NewLimiter(perSecond*rate.Limit(time.Second), int(time.Second))
		l := newLine(t, QueueConfig{AtOnce: 1, Each: 1, Work: work})
		l.ask("a", "a")
		l.turn("a").End(time.Second) // all that there is
		l.ask("b", "b")
		l.is("a")
		time.Sleep(time.Microsecond)
		synctest.Wait()
		l.is("a", "b") // as soon as there is any
		l.turn("b").End(2 * time.Second)
		began := time.Now()
		l.ask("c", "c")
		for range 2 { // which do not make it sooner
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

// TestQueueGivenUp leaves the row when there is nothing to wait for.
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
