package cq

import (
	"errors"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/epoll"
)

// tracedCQ records when it is armed and its events are read.
type tracedCQ struct {
	fabric.CQ
	trace *[]string
}

func (c tracedCQ) Arm(bool) error {
	*c.trace = append(*c.trace, "arm")
	return nil
}

func (c tracedCQ) ReadEvent() (bool, error) {
	*c.trace = append(*c.trace, "read")
	return false, nil
}

// TestUntilIdle lets a worker look for work which comes now and then. It may sleep only when it has
// found nothing since it requested notification.
func TestUntilIdle(t *testing.T) {
	for _, c := range []struct {
		work []bool // what each look finds
		want []string
	}{
		{[]bool{false, false}, []string{"look", "arm", "look"}},
		{[]bool{true, true, false, false}, []string{"look", "look", "look", "arm", "look"}},
		{[]bool{false, true, false, false}, []string{"look", "arm", "look", "look", "read", "arm", "look"}},
	} {
		var trace []string
		n := Notification{CQ: tracedCQ{trace: &trace}}
		var stopped atomic.Bool
		looks := 0
		wake, err := epoll.NewEvent()
		if err != nil {
			t.Fatal(err)
		}
		w := NewHandlers(Handling{Handlers: make([]Handler, 2), Assigned: []int{1}}, 1, nil).NewWorker(1, RoleReceiver, wake)
		ended, err := w.UntilIdle(&n, &stopped, func() (bool, error) {
			trace = append(trace, "look")
			if looks++; looks > len(c.work) {
				stopped.Store(true) // ends a worker that goes on
				return false, nil
			}
			return c.work[looks-1], nil
		})
		if err := errors.Join(err, wake.Close()); ended || err != nil || !slices.Equal(trace, c.want) {
			t.Errorf("%v: ended %t, %v: %v, want %v", c.work, ended, err, trace, c.want)
		}
	}
}

// TestSet changes handlers and assignments. A worker must have the budget and the time to poll of the
// handler of its channel, and those of none when it is assigned to none.
func TestSet(t *testing.T) {
	limits := func(b int, spin time.Duration) Handler { return Handler{Budget: b, Spin: spin} }
	handling := func(assigned int, of Handler) Handling {
		of.Number = 1
		return Handling{Handlers: []Handler{{Budget: DefaultBudget}, of}, Assigned: []int{assigned}}
	}
	wake, err := epoll.NewEvent()
	if err != nil {
		t.Fatal(err)
	}
	h := NewHandlers(handling(1, limits(7, time.Millisecond)), 1, nil)
	w := h.NewWorker(1, RoleReceiver, wake)
	expect := func(budget int, spin time.Duration) {
		t.Helper()
		if n, length := w.Allowance(MaxBudget), w.Polling.begin(); n != budget || length != spin {
			t.Errorf("a budget of %d, and %v to poll; want %d and %v", n, length, budget, spin)
		}
	}
	expect(7, time.Millisecond)
	for _, c := range []struct {
		set    Handling
		budget int
		spin   time.Duration
	}{
		{handling(1, limits(9, 0)), 9, 0},
		{handling(1, limits(9, MaxSpin)), 9, MaxSpin},
		{handling(Unassigned, limits(9, MaxSpin)), DefaultBudget, 0},
	} {
		if err := h.Set(c.set); err != nil {
			t.Error(err)
		}
		expect(c.budget, c.spin)
	}
	if err := wake.Close(); err != nil {
		t.Error(err)
	}
}

// TestCountsStay assigns a channel to one handler after the other, and to none. Each handler must keep
// the counts of the time when it had the channel, and get no others.
func TestCountsStay(t *testing.T) {
	handling := func(assigned int) Handling {
		handlers := []Handler{{Budget: 1}, {Number: 1, Budget: 1}, {Number: 2, Budget: 1}}
		return Handling{Handlers: handlers, Assigned: []int{assigned}}
	}
	wake, err := epoll.NewEvent()
	if err != nil {
		t.Fatal(err)
	}
	h := NewHandlers(handling(1), 1, nil)
	w := h.NewWorker(1, RoleReceiver, wake)
	want := make([]tally, 3)
	for i, number := range []int{1, 2, 1, Unassigned, 2} {
		if err := h.Set(handling(number)); err != nil {
			t.Error(err)
		}
		n := 10 << i
		w.Took(n)
		w.Woke()
		w.Spend(1)
		if number != Unassigned {
			want[number] = want[number].plus(tally{uint64(n), 1, 1})
		}
		var got []tally
		for _, s := range h.Stats() {
			got = append(got, tally{s.Completions, s.Wakeups, s.BudgetExhausted})
		}
		if !slices.Equal(got, want) {
			t.Errorf("step %d, with handler %d: %v, want %v", i, number, got, want)
		}
	}
	if err := wake.Close(); err != nil {
		t.Error(err)
	}
}

// TestSpend uses a budget in parts. It must be whole again after it was exhausted, and after each sleep.
func TestSpend(t *testing.T) {
	g := Handling{Handlers: []Handler{{Budget: 1}, {Number: 1, Budget: 10}}, Assigned: []int{1}}
	w := NewHandlers(g, 1, nil).NewWorker(1, RoleReceiver, nil)
	for i, c := range []struct {
		spend     int
		wakes     bool // after a sleep
		left      int
		exhausted bool
	}{
		{6, false, 4, false},
		{6, true, 4, false},
		{3, false, 1, false},
		{1, false, 10, true},
		{6, false, 4, false},
	} {
		if c.wakes {
			w.Woke()
		}
		if got, left := w.Spend(c.spend), w.Allowance(MaxBudget); got != c.exhausted || left != c.left {
			t.Errorf("step %d: exhausted %t, %d are left, want %t and %d", i, got, left, c.exhausted, c.left)
		}
	}
}

// TestChange expects the handlers and assignments that are changed to be others than those before,
// which may be in use.
func TestChange(t *testing.T) {
	handling := func(budget, assigned int) Handling {
		return Handling{Handlers: []Handler{{Budget: 1}, {Budget: budget}, {Budget: 1}}, Assigned: []int{assigned}}
	}
	budget, before := 9, handling(7, 1)
	after, err := before.Change(HandlerChange{
		Assign: map[int]int{1: 2}, Handlers: []HandlerPatch{{Number: 1, Budget: &budget}},
	})
	if err != nil || !reflect.DeepEqual(after, handling(9, 2)) {
		t.Errorf("after: %+v, %v", after, err)
	}
	if !reflect.DeepEqual(before, handling(7, 1)) {
		t.Errorf("before: %+v", before)
	}
}
