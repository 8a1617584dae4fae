package discovery

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// script is a DNS whose answers a test sets.
type script struct {
	start time.Time
	delay time.Duration
	keep  string // directory for kept answers

	mu     sync.Mutex // guards what follows
	answer Answer
	err    error
	late   bool            // the jitter is as large as possible
	when   []time.Duration // times of the questions since the start
}

func (s *script) lookup(ctx context.Context, _ string) (Answer, error) {
	s.mu.Lock()
	s.when = append(s.when, time.Since(s.start))
	a, err := s.answer, s.err
	s.mu.Unlock()
	select {
	case <-time.After(s.delay):
		return a, err
	case <-ctx.Done():
		return Answer{}, ctx.Err()
	}
}

func (s *script) rand(n int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.late {
		return n - 1
	}
	return 0
}

func (s *script) setLate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.late = true
}

// asked returns the times of the questions.
func (s *script) asked() []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.when)
}

func (s *script) fails(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (s *script) says(ttl time.Duration, words string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer, s.err = Answer{Records: records(words), TTL: ttl}, nil
}

// run starts a directory, which runs until the end of the test. It is called in a synctest bubble,
// in which time passes only while all goroutines wait.
func (s *script) run(t *testing.T, entries ...string) *Directory {
	t.Helper()
	d, end := s.begin(t, entries...)
	t.Cleanup(end)
	return d
}

// begin does what run does, for a directory that ends before the test, by a call of end.
func (s *script) begin(t *testing.T, entries ...string) (d *Directory, end func()) {
	t.Helper()
	s.start = time.Now()
	d, err := New(entries, "host", Settings{Lookup: s.lookup, Rand: s.rand, Keep: s.keep}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() {
		defer close(over)
		d.Run(ctx)
	}()
	synctest.Wait()
	return d, func() {
		cancel()
		<-over
	}
}

func list(d *Directory) string {
	units, _, _ := d.Units()
	return strings.Join(units, " ")
}

// pass lets the time d pass, and waits until all goroutines are blocked again.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// TestTTL expects DNS to be asked again after the time to live, within bounds.
func TestTTL(t *testing.T) {
	for _, c := range []struct{ ttl, want time.Duration }{
		{0, 5 * time.Second}, {time.Second, 5 * time.Second}, {5 * time.Second, 5 * time.Second},
		{time.Minute, time.Minute}, {24 * time.Hour, 5 * time.Minute}, {(1<<31 - 1) * time.Second, 5 * time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			var s script
			s.says(c.ttl, "a:1:1")
			s.run(t, "srv:x")
			pass(2*c.want + time.Second)
			if want := []time.Duration{0, c.want, 2 * c.want}; !slices.Equal(s.asked(), want) {
				t.Errorf("TTL %v: asked after %v, want %v", c.ttl, s.asked(), want)
			}
		})
	}
}

// TestJitter expects a jitter in the times of queries, so that hosts that start together do not
// always ask together.
func TestJitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s script
		s.says(time.Minute, "a:1:1")
		s.run(t, "srv:x")
		s.setLate()
		pass(2*time.Minute + 6*time.Second)
		if want := []time.Duration{0, time.Minute, 2*time.Minute + 6*time.Second}; !slices.Equal(s.asked(), want) {
			t.Errorf("asked after %v, want %v", s.asked(), want)
		}
	})
}

// TestListChanges changes the zone, and expects the new list of I/O units and a notification. The
// same answer is not a change.
func TestListChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s script
		s.says(time.Minute, "a:1:1 b:2:1")
		d := s.run(t, "10.0.0.1", "srv:x", "b:1")
		_, asked, changed := d.Units()
		if got := list(d); got != "10.0.0.1 a:1 b:1" || !asked {
			t.Fatalf("%s, asked: %t", got, asked)
		}
		said := func() bool {
			select {
			case <-changed:
				return true
			default:
				return false
			}
		}
		pass(90 * time.Second)
		if said() {
			t.Error("the same answer is a change")
		}
		s.says(time.Minute, "c:1:1 b:2:1")
		pass(time.Minute)
		if got := list(d); got != "10.0.0.1 c:1 b:1" || !said() {
			t.Errorf("%s", got)
		}
		if st := d.Status(); len(st) != 1 || st[0].Name != "x" || st[0].Units != 2 ||
			st[0].Error != "" || st[0].Answered.IsZero() {
			t.Errorf("%+v", st)
		}
	})
}

// TestFailureKeepsTheList has DNS fail after an answer. It expects the list of the answer to stay
// valid, and further queries with growing pauses until DNS answers.
func TestFailureKeepsTheList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s script
		s.says(time.Minute, "a:1:1 b:2:1")
		d := s.run(t, "srv:x")
		s.fails(errNoName)
		pass(time.Minute)
		st := d.Status()[0]
		if got := list(d); got != "a:1 b:1" || st.Error != errNoName.Error() || st.Failures != 1 || st.Units != 2 {
			t.Errorf("%s, %+v", got, st)
		}
		if err := d.Why(); err != nil {
			t.Errorf("there are some, and yet: %v", err)
		}
		pass(2 * time.Minute)
		var pauses []time.Duration
		for i, asked := 2, s.asked(); i < len(asked); i++ {
			pauses = append(pauses, asked[i]-asked[i-1])
		}
		const sec = time.Second // half of 1, 2, 4 … 30 s: Rand is 0
		want := []time.Duration{sec / 2, sec, 2 * sec, 4 * sec, 8 * sec, 15 * sec, 15 * sec}
		if !slices.Equal(pauses[:7], want) {
			t.Errorf("pauses %v, want %v", pauses[:7], want)
		}
		s.says(time.Minute, "c:1:1")
		pass(15 * time.Second)
		if got, st := list(d), d.Status()[0]; got != "c:1" || st.Error != "" {
			t.Errorf("%s, %+v", got, st)
		}
		asked := len(s.asked())
		s.fails(errNoName)
		pass(time.Minute + time.Second/2)
		if len(s.asked()) < asked+2 {
			t.Error("the pause after a failure is not short again")
		}
	})
}

// TestFailureAtTheStart has DNS fail from the start, with an address configured as well. It expects
// the host to have the address, but only after DNS was asked.
func TestFailureAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := script{err: errors.New("broken"), delay: time.Second}
		d := s.run(t, "srv:x", "10.0.0.1")
		units, asked, changed := d.Units()
		if len(units) != 0 || asked {
			t.Errorf("%v, asked: %t", units, asked)
		}
		pass(time.Second)
		<-changed
		if got, err := list(d), d.Why(); got != "10.0.0.1" || err == nil || err.Error() != "broken" {
			t.Errorf("%s, %v", got, err)
		}
		s.says(time.Minute, "a:1:1")
		pass(3 * time.Second)
		if got, err := list(d), d.Why(); got != "a:1 10.0.0.1" || err != nil {
			t.Errorf("%s, %v", got, err)
		}
	})
}

// TestRefresh calls Refresh often, like a host that can reach no I/O unit. It expects early
// queries, but not more often than the shortest time to live.
func TestRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s script
		s.says(time.Minute, "a:1:1")
		d := s.run(t, "srv:x", "10.0.0.1")
		for range 41 {
			d.Refresh()
			pass(time.Second / 4)
		}
		if len(s.asked()) != 3 {
			t.Errorf("asked after %v", s.asked())
		}
	})
}

// TestRefreshAtOnce expects an immediate query after Refresh if the last query was long enough ago.
func TestRefreshAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s script
		s.says(time.Minute, "a:1:1")
		d := s.run(t, "srv:x")
		pass(30 * time.Second)
		d.Refresh()
		pass(time.Second)
		if got := s.asked(); len(got) != 2 || got[1] != 30*time.Second {
			t.Errorf("asked after %v", got)
		}
	})
}

// TestAddressesAlone has entries without DNS names, and expects no queries.
func TestAddressesAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s script
		d := s.run(t, "b", "a", "b")
		d.Refresh()
		pass(time.Hour)
		if got := list(d); got != "b a" || len(s.asked()) != 0 || d.Status() != nil || d.Why() != nil {
			t.Errorf("%s, asked after %v", got, s.asked())
		}
	})
}

// TestBadEntry expects an error that names the invalid entry.
func TestBadEntry(t *testing.T) {
	if _, err := New([]string{"a", "srv:x y"}, "host", Settings{}, nil); err == nil || !strings.Contains(err.Error(), "srv:x y") {
		t.Error(err)
	}
}
