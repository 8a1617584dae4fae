// Package ticker calls functions at regular intervals: all of the same interval from
// one goroutine, with one timer. Where each of many sessions has a timer and a goroutine
// of its own, an idle process is kept awake by them. Calls come at multiples of the interval
// on the clock, so that those of one interval that is a multiple of another come together.
// A function that knows that it has nothing to do before a later call rests until then, and
// costs nothing meanwhile; who gives it something to do wakes it.
package ticker

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Tick is one call.
type Tick struct {
	Now  time.Time
	Late time.Duration // how long ago it was due; those that were due meanwhile are left out
	// N is the number of the call among those of its interval, the same for all functions:
	// those that do something in one call of so many do it together.
	N uint64
}

// Ticker is a set of functions. The zero Ticker has none.
type Ticker struct {
	mu     sync.Mutex
	groups map[time.Duration]*group
	clocks map[time.Duration]*Clock // those asked for, for ever: there are few intervals
}

// Clock is how long the functions of an interval have been called. It stands still while there
// are none, and leaves out the time before a call that was more than lateness intervals late:
// while the process stands still, so does the clock.
type Clock struct{ ns atomic.Int64 }

// lateness is how many intervals a call can be late for the time before it to count.
const lateness = 4

// Now is the time at the latest call.
func (c *Clock) Now() time.Duration { return time.Duration(c.ns.Load()) }

// Advance is for who has the functions called himself.
func (c *Clock) Advance(d time.Duration) { c.ns.Add(int64(d)) }

// Clock returns the clock of an interval.
func (t *Ticker) Clock(interval time.Duration) *Clock {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.clock(interval)
}

func (t *Ticker) clock(interval time.Duration) *Clock {
	c := t.clocks[interval]
	if c == nil {
		if t.clocks == nil {
			t.clocks = make(map[time.Duration]*Clock)
		}
		c = &Clock{}
		t.clocks[interval] = c
	}
	return c
}

// wheel is one more than the calls that a function can leave out at a time.
const wheel = 32

// group are those with an interval. All but the clock is guarded by Ticker.mu.
type group struct {
	slots [wheel][]*Task // by the number of the call that they wait for
	next  uint64         // number of the next call
	size  int            // those that have not stopped
	none  chan struct{}
	clock *Clock
}

// Task is a function that is called.
type Task struct {
	ticker   *Ticker
	interval time.Duration
	do       func(Tick) int

	stopped atomic.Bool
	calling sync.Mutex
	slot    int  // that it waits in; -1: it is being called. Guarded by Ticker.mu
	woken   bool // it is being called, and not to rest then. Guarded by Ticker.mu
}

// Every has do called once in each interval; the first call comes when it is the turn
// of those with the same interval. It must not wait for anything, because all others
// wait for it, nor stop its own task. It returns how many calls it leaves out then, up to
// MaxRest.
func (t *Ticker) Every(interval time.Duration, do func(Tick) (rest int)) *Task {
	task := &Task{ticker: t, interval: interval, do: do}
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.groups[interval]
	if g == nil {
		g = &group{none: make(chan struct{}), clock: t.clock(interval)}
		if t.groups == nil {
			t.groups = make(map[time.Duration]*group)
		}
		t.groups[interval] = g
		go t.run(g, interval)
	}
	g.size++
	g.put(task, 0)
	return task
}

// MaxRest is how many calls a function can leave out at a time. More are taken for so many.
const MaxRest = wheel - 1

// put has a task wait for the next call but rest.
func (g *group) put(k *Task, rest int) {
	k.slot = int((g.next + uint64(max(min(rest, MaxRest), 0))) % wheel)
	g.slots[k.slot] = append(g.slots[k.slot], k)
}

// take returns the tasks of the next call, in a slice that the caller has for that, and the
// number of the call.
func (t *Ticker) take(g *group, tasks []*Task) ([]*Task, uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := g.next
	g.next++
	slot := &g.slots[n%wheel]
	tasks = append(tasks[:0], *slot...)
	clear(*slot)
	*slot = (*slot)[:0]
	for _, k := range tasks {
		k.slot = -1
	}
	return tasks, n
}

// Stop ends the calls. When it returns there is none any more, and none that goes on.
// A nil Task has stopped.
func (k *Task) Stop() {
	if k == nil {
		return
	}
	if !k.stopped.Swap(true) {
		k.ticker.remove(k)
	}
	k.calling.Lock()
	defer k.calling.Unlock()
}

// Wake ends a rest: the function is called in the next interval, and if it is being called
// now, once more then. It may be called from anywhere, also after Stop, and does not wait for
// a call. A nil Task has stopped.
func (k *Task) Wake() {
	if k == nil {
		return
	}
	t := k.ticker
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case k.stopped.Load():
	case k.slot < 0:
		k.woken = true
	default:
		g := t.groups[k.interval]
		if k.slot != int(g.next%wheel) {
			g.drop(k)
			g.put(k, 0)
		}
	}
}

// drop has a task wait no more.
func (g *group) drop(k *Task) {
	slot := &g.slots[k.slot]
	i, last := slices.Index(*slot, k), len(*slot)-1
	(*slot)[i], (*slot)[last] = (*slot)[last], nil
	*slot = (*slot)[:last]
}

func (t *Ticker) remove(k *Task) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.groups[k.interval]
	if k.slot >= 0 {
		g.drop(k)
	}
	if g.size--; g.size == 0 {
		delete(t.groups, k.interval)
		close(g.none)
	}
}

// run calls the functions of a group until it has none.
func (t *Ticker) run(g *group, interval time.Duration) {
	last := time.Now()
	tick := time.NewTicker(last.Truncate(interval).Add(interval).Sub(last.Round(0)))
	defer tick.Stop()
	var tasks []*Task
	for {
		select {
		case <-g.none:
			return
		case due := <-tick.C:
			var n uint64
			if tasks, n = t.take(g, tasks); n == 0 {
				tick.Reset(interval)
			}
			now := time.Now()
			late := now.Sub(due)
			if late <= lateness*interval {
				g.clock.Advance(now.Sub(last))
			}
			last = now
			for i, k := range tasks {
				rest := k.call(Tick{Now: now, Late: late, N: n})
				t.mu.Lock()
				if k.woken {
					rest, k.woken = 0, false
				}
				if !k.stopped.Load() {
					g.put(k, rest)
				}
				t.mu.Unlock()
				tasks[i] = nil
			}
		}
	}
}

func (k *Task) call(tick Tick) (rest int) {
	k.calling.Lock()
	defer k.calling.Unlock()
	if k.stopped.Load() {
		return 0
	}
	return k.do(tick)
}
