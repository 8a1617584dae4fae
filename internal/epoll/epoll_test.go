package epoll_test

import (
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/epoll"
	"github.com/splitnic/splitnic/internal/testenv"
)

func newEvent(t *testing.T) *epoll.Event {
	t.Helper()
	e, err := epoll.NewEvent()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

func newSet(t *testing.T, interests ...epoll.Interest) *epoll.Set {
	t.Helper()
	s, err := epoll.NewSet(interests...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// TestReadyBefore waits for an event that is set already. It expects each wait to return until
// the event is cleared. Go's poller would not report such an event.
func TestReadyBefore(t *testing.T) {
	first, second := newEvent(t), newEvent(t)
	s := newSet(t, epoll.Readable(first.FD()), epoll.Readable(second.FD()))
	second.Set()
	for range 3 {
		if err := s.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	second.Clear()
	const short = 10 * time.Millisecond
	began := time.Now()
	if err := s.WaitFor(short); time.Since(began) < short || err != nil {
		t.Errorf("nothing is ready, but the wait is over: %v", err)
	}
	first.Set()
	if err := s.Wait(); err != nil { // the earlier deadline has no effect
		t.Error(err)
	}
}

// TestRunHearsWhatHappensMeanwhile sets the event during a call of work, after work has cleared
// it. It expects another call.
func TestRunHearsWhatHappensMeanwhile(t *testing.T) {
	e := newEvent(t)
	s := newSet(t, epoll.Readable(e.FD()))
	calls, end := 0, errors.New("the end")
	if err := s.Run(func() (bool, error) {
		e.Clear()
		calls++
		if calls < 1000 {
			e.Set()
			return false, nil
		}
		return true, end
	}); !errors.Is(err, end) || calls != 1000 {
		t.Errorf("called %d times: %v", calls, err)
	}
}

// TestWatch makes a set wait for one of two events that are set, and for the other one. It expects waits
// to end only for the event that the set waits for, and Run to notice an event that comes after the
// change.
func TestWatch(t *testing.T) {
	first, second := newEvent(t), newEvent(t)
	s := newSet(t, epoll.Readable(first.FD()), epoll.Readable(second.FD()))
	watch := func(e *epoll.Event, on bool) {
		t.Helper()
		if err := s.Watch(epoll.Readable(e.FD()), on); err != nil {
			t.Fatal(err)
		}
	}
	ends := func() bool {
		t.Helper()
		const short = 10 * time.Millisecond
		began := time.Now()
		if err := s.WaitFor(short); err != nil {
			t.Fatal(err)
		}
		return time.Since(began) < short
	}
	second.Set()
	watch(second, false)
	if ends() {
		t.Error("the set still waits for an event")
	}
	first.Set()
	if !ends() {
		t.Error("the set does not wait for the other event any more")
	}
	first.Clear()
	calls := 0
	if err := s.Run(func() (bool, error) {
		if calls++; calls == 1 {
			second.Clear()
			watch(second, true)
			second.Set()
			return false, nil
		}
		return true, nil
	}); err != nil || calls != 2 {
		t.Errorf("called %d times: %v", calls, err)
	}
	if n := testing.AllocsPerRun(100, func() { watch(first, true) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	s.Close()
	if s.Watch(epoll.Readable(first.FD()), true) == nil {
		t.Error("a closed set can be changed")
	}
}

// TestWaitFailsWhenClosed waits on a closed set, which no event can wake, and expects errors.
func TestWaitFailsWhenClosed(t *testing.T) {
	s := newSet(t)
	s.Close()
	if s.Wait() == nil || s.WaitFor(time.Hour) == nil || s.Run(func() (bool, error) { return false, nil }) == nil {
		t.Error("a closed set waits")
	}
}

// TestEventIsNotLost has one goroutine notify another through an event, as fast as possible. It
// expects every notification to be seen, and the event to be clear at the end.
func TestEventIsNotLost(t *testing.T) {
	const rounds = 20000
	there, back := newEvent(t), newEvent(t)
	var mu sync.Mutex
	told, heard := 0, 0
	get := func(n *int) int {
		mu.Lock()
		defer mu.Unlock()
		return *n
	}
	wait := func(s *epoll.Set, e *epoll.Event, until func() bool) {
		for {
			e.Clear()
			if until() {
				return
			}
			if err := s.Wait(); err != nil {
				t.Error(err)
				return
			}
		}
	}
	add := func(n *int) {
		mu.Lock()
		*n++
		mu.Unlock()
	}
	var listener sync.WaitGroup
	listening := newSet(t, epoll.Readable(there.FD()))
	listener.Go(func() {
		for i := range rounds {
			wait(listening, there, func() bool { return get(&told) > i })
			add(&heard)
			back.Set()
		}
	})
	telling := newSet(t, epoll.Readable(back.FD()))
	for i := range rounds {
		add(&told)
		there.Set()
		wait(telling, back, func() bool { return get(&heard) > i })
	}
	listener.Wait()
	for _, e := range []*epoll.Event{there, back} {
		e.Clear()
		if testenv.Readable(t, e.FD(), 0) {
			t.Error("the event is up")
		}
	}
}

// TestRoomIsTold waits until a full pipe is writable.
func TestRoomIsTold(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	fd := int(w.Fd())
	if err := unix.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	chunk := make([]byte, 1<<16)
	for err = nil; err == nil; {
		_, err = unix.Write(fd, chunk)
	}
	s := newSet(t, epoll.Writable(fd))
	emptied := make(chan error, 1)
	go func() {
		_, err := r.Read(chunk)
		emptied <- err
	}()
	if err := s.Wait(); err != nil {
		t.Error(err)
	}
	if err := <-emptied; err != nil {
		t.Error(err)
	}
	if n, err := unix.Write(fd, chunk[:1]); n != 1 || err != nil {
		t.Errorf("there is no room: %v", err)
	}
}

// TestWaitDoesNotAllocate expects no allocations in a wait: every worker waits between frames.
func TestWaitDoesNotAllocate(t *testing.T) {
	e := newEvent(t)
	s := newSet(t, epoll.Readable(e.FD()))
	got := testing.AllocsPerRun(100, func() {
		e.Set()
		if err := s.Wait(); err != nil {
			t.Fatal(err)
		}
		e.Clear()
	})
	if got != 0 {
		t.Errorf("%v allocations", got)
	}
}
