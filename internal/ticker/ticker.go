// Package ticker calls functions at regular intervals. One goroutine with one timer calls all
// functions of the same interval. With a timer and a goroutine for each of many sessions, an
// idle process would be kept awake. Calls are made at multiples of the interval on the clock:
// if one interval is a multiple of another, their calls coincide.
//
// A function that knows that it has nothing to do before a later call rests until then, and
// costs nothing meanwhile. Code that gives the function something to do wakes it. If all
// functions of an interval rest at a call, the goroutine is not woken for it: to wake an idle
// process takes longer than most calls.
package ticker

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Tick describes one call.
type Tick struct {
	Now  time.Time
	Late time.Duration // delay of the call; calls that were due meanwhile are left out
	// N is the number of the call among the calls of its interval, the same for all functions:
	// functions that do something only in every nth call do it together.
	N uint64
}

// Ticker is a set of functions. The zero Ticker has none.
type Ticker struct {
	mu     sync.Mutex
	groups map[time.Duration]*group
	clocks map[time.Duration]*Clock // never removed: there are few intervals
}

// epoch is the time from which calls are counted: the beginning of an hour, which is a multiple
// of the usual intervals.
var epoch = func() time.Time {
	now := time.Now()
	return now.Add(now.Truncate(time.Hour).Sub(now.Round(0))) // keeps the monotonic clock reading
}()

// Clock measures for how long the functions of an interval have been called, in whole intervals.
// It stands still while the interval has no functions. It leaves out the time before a call that
// was more than lateness intervals late, and so stands still while the process does.
type Clock struct {
	interval time.Duration
	ticker   *Ticker
	// While the goroutine is woken for each call, v is twice the time of the clock at the last
	// call. While there are calls for which it is not woken, v is twice the time between epoch
	// and the beginning of the clock, plus one.
	v     atomic.Int64
	reads atomic.Int32 // reads by Often while there are calls without waking the goroutine
	asked atomic.Bool  // Often has read the clock since the last call
}

// lateness is the largest delay of a call, in intervals, with which the time before it counts.
const lateness = 4

// Now returns the time of the clock at the last call, whether the goroutine was woken for that
// call or not.
func (c *Clock) Now() time.Duration {
	v := c.v.Load()
	if v&1 == 0 {
		return time.Duration(v >> 1)
	}
	return (time.Since(epoch) - time.Duration(v>>1)).Truncate(c.interval)
}

// often is how many times Often gets the time from the system before it has the goroutine woken
// for each call.
const often = 64

// Often is Now for callers that use it again and again, as for each batch of frames. While they
// do, the goroutine is woken for each call. Otherwise each use would have to get the time from
// the system, which takes longer.
func (c *Clock) Often() time.Duration {
	if v := c.v.Load(); v&1 == 0 && c.asked.Load() {
		return time.Duration(v >> 1)
	}
	return c.ask()
}

func (c *Clock) ask() time.Duration {
	if c.v.Load()&1 == 0 {
		c.asked.Store(true)
	} else if c.reads.Add(1) == often {
		c.hurry()
	}
	return c.Now()
}

// hurry has the goroutine of the interval woken for the next call.
func (c *Clock) hurry() {
	c.ticker.mu.Lock()
	defer c.ticker.mu.Unlock()
	if g := c.ticker.groups[c.interval]; g != nil {
		g.catchUp()
		g.wake()
	}
}

// Advance adds d to the time of the clock. It is for a caller that calls the functions itself.
func (c *Clock) Advance(d time.Duration) { c.v.Add(int64(d) << 1) }

// set stops the clock at the time of a call.
func (c *Clock) set(now time.Duration) { c.v.Store(int64(now) << 1) }

// run lets the clock go on by itself. began is the time from epoch to the clock's beginning.
func (c *Clock) run(began time.Duration) { c.v.Store(int64(began)<<1 | 1) }

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
		c = &Clock{interval: interval, ticker: t}
		t.clocks[interval] = c
	}
	return c
}

// wheel is the number of slots of a group: one more than the calls that a function can leave out
// at a time.
const wheel = 32

// group has the tasks with the same interval. All fields but clock are guarded by Ticker.mu.
type group struct {
	interval time.Duration
	slots    [wheel][]*Task // tasks by the number of the call that they wait for, modulo wheel
	next     uint64         // number of the next call
	due      time.Duration  // time of the next call, from epoch
	passed   time.Duration  // time of the clock at the call before
	size     int            // number of tasks that have not stopped
	none     chan struct{}
	clock    *Clock

	timer *time.Timer
	rest  int // number of calls, from the next one on, for which the goroutine is not woken
}

// Task is a function that a Ticker calls.
type Task struct {
	ticker   *Ticker
	interval time.Duration
	do       func(Tick) int

	stopped atomic.Bool
	calling sync.Mutex
	slot    int  // slot in which it waits; -1: it is being called. Guarded by Ticker.mu
	woken   bool // it is being called, and must not rest after that. Guarded by Ticker.mu
}

// Every makes t call do once in each interval, for the first time at the next call of this
// interval. do must not wait for anything, because all other functions wait for it, and must not
// stop its own task. It returns how many calls to leave out next, up to MaxRest.
func (t *Ticker) Every(interval time.Duration, do func(Tick) (rest int)) *Task {
	task := &Task{ticker: t, interval: interval, do: do}
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.groups[interval]
	if g == nil {
		g = newGroup(interval, t.clock(interval))
		if t.groups == nil {
			t.groups = make(map[time.Duration]*group)
		}
		t.groups[interval] = g
		go t.run(g)
	}
	g.size++
	g.soon(task)
	return task
}

func newGroup(interval time.Duration, clock *Clock) *group {
	now := time.Since(epoch)
	g := &group{interval: interval, none: make(chan struct{}), clock: clock, passed: clock.Now()}
	for g.due = now - now%interval; g.due <= now; g.due += interval {
	}
	g.timer = time.NewTimer(g.due - now)
	return g
}

// MaxRest is how many calls a function can leave out at a time. A larger number counts as
// MaxRest.
const MaxRest = wheel - 1

// put makes a task leave out rest calls and wait for the one after them.
func (g *group) put(k *Task, rest int) {
	k.slot = int((g.next + uint64(max(min(rest, MaxRest), 0))) % wheel)
	g.slots[k.slot] = append(g.slots[k.slot], k)
}

// soon makes a task wait for the next call, and has the goroutine woken for it.
func (g *group) soon(k *Task) {
	g.catchUp()
	g.put(k, 0)
	g.wake()
}

// wake has the goroutine woken for the next call.
func (g *group) wake() {
	if g.rest > 0 {
		g.rest = 0
		g.clock.set(g.passed)
		g.timer.Reset(g.due - time.Since(epoch))
	}
}

// catchUp counts the calls that were due by now and for which the goroutine was not woken.
func (g *group) catchUp() {
	if over := time.Since(epoch) - g.due; g.rest > 0 && over >= 0 {
		g.leaveOut(min(int(over/g.interval)+1, g.rest))
	}
}

// leaveOut counts n of the calls for which the goroutine is not woken.
func (g *group) leaveOut(n int) {
	g.rest -= n
	g.next += uint64(n)
	d := time.Duration(n) * g.interval
	g.due += d
	g.passed += d
}

// sleep sets the timer to the next call that a task waits for, or to the next call if Often has
// read the clock.
func (t *Ticker) sleep(g *group) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if g.size == 0 {
		return
	}
	waits := func(rest int) bool { return len(g.slots[(g.next+uint64(rest))%wheel]) > 0 }
	now := time.Since(epoch)
	if late := now - g.due; late >= 0 && !waits(0) {
		g.pass(late)
	}
	if !g.clock.asked.Swap(false) {
		for g.rest < MaxRest && !waits(g.rest) {
			g.rest++
		}
		g.clock.reads.Store(0)
	}
	if g.clock.set(g.passed); g.rest > 0 {
		g.clock.run(g.due - g.interval - g.passed)
	}
	g.timer.Reset(g.due + time.Duration(g.rest)*g.interval - now)
}

// take begins a call, and returns its tasks in the memory of the slice tasks.
func (t *Ticker) take(g *group, tasks []*Task) ([]*Task, Tick) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g.leaveOut(g.rest)
	slot := &g.slots[g.next%wheel]
	tasks = append(tasks[:0], *slot...)
	clear(*slot)
	*slot = (*slot)[:0]
	for _, k := range tasks {
		k.slot = -1
	}
	now := time.Now()
	tick := Tick{Now: now, Late: now.Sub(epoch) - g.due, N: g.next}
	if g.pass(tick.Late); g.size > 0 {
		g.clock.set(g.passed)
	}
	return tasks, tick
}

// pass counts a call with this delay, and leaves out the calls that were due meanwhile.
func (g *group) pass(late time.Duration) {
	d := g.interval + late - late%g.interval
	g.next++
	g.due += d
	if late <= lateness*g.interval {
		g.passed += d
	}
}

// Stop ends the calls, and waits for a call in progress. No call begins after Stop has returned.
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

// Wake ends a rest: the function is called at the next call of its interval. A function that is
// being called now is called again then. Wake may be called from anywhere, also after Stop, and
// does not wait for a call in progress. A nil Task has stopped.
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
		if g.catchUp(); k.slot != int(g.next%wheel) {
			g.drop(k)
			g.soon(k)
		}
	}
}

// drop removes a task from the slot in which it waits.
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
		g.catchUp()
		g.clock.set(g.passed)
		delete(t.groups, k.interval)
		close(g.none)
	}
}

// run calls the functions of a group until there are none.
func (t *Ticker) run(g *group) {
	defer g.timer.Stop()
	var tasks []*Task
	for {
		select {
		case <-g.none:
			return
		case <-g.timer.C:
			var tick Tick
			tasks, tick = t.take(g, tasks)
			for i, k := range tasks {
				rest := k.call(tick)
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
			t.sleep(g)
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
