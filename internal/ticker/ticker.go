// Package ticker calls functions at regular intervals: all of the same interval from
// one goroutine, with one timer. Where each of many sessions has a timer and a goroutine
// of its own, an idle process is kept awake by them. Calls come at multiples of the interval
// on the clock, so that those of one interval that is a multiple of another come together.
// A function that knows that it has nothing to do before a later call rests until then, and
// costs nothing meanwhile; who gives it something to do wakes it. Nobody is woken for a call at
// which all functions rest: to wake an idle process takes longer than most calls.
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

// epoch is what calls are counted from: the beginning of an hour, which is a multiple of the
// usual intervals.
var epoch = func() time.Time {
	now := time.Now()
	return now.Add(now.Truncate(time.Hour).Sub(now.Round(0))) // it keeps the monotonic reading
}()

// Clock is how long the functions of an interval have been called, in whole intervals. It stands
// still while there are none, and leaves out the time before a call that was more than lateness
// intervals late: while the process stands still, so does the clock.
type Clock struct {
	interval time.Duration
	ticker   *Ticker
	// Either twice the time at the latest call or, while calls come at which nobody is woken,
	// twice the time between epoch and the beginning of the clock, and one.
	v     atomic.Int64
	reads atomic.Int32 // by Often, while calls come at which nobody is woken
	asked atomic.Bool  // by Often, since the latest call
}

// lateness is how many intervals a call can be late for the time before it to count.
const lateness = 4

// Now is the time at the latest call, whether anybody was woken for that or not.
func (c *Clock) Now() time.Duration {
	v := c.v.Load()
	if v&1 == 0 {
		return time.Duration(v >> 1)
	}
	return (time.Since(epoch) - time.Duration(v>>1)).Truncate(c.interval)
}

// often is how many times Often looks at the time itself.
const often = 64

// Often is Now for who asks again and again, as for each batch of frames: for so long somebody is
// woken for each call, because without that each of them would have to look at the time, which
// takes longer.
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

// hurry has somebody woken for the next call.
func (c *Clock) hurry() {
	c.ticker.mu.Lock()
	defer c.ticker.mu.Unlock()
	if g := c.ticker.groups[c.interval]; g != nil {
		g.catchUp()
		g.wake()
	}
}

// Advance is for who has the functions called himself.
func (c *Clock) Advance(d time.Duration) { c.v.Add(int64(d) << 1) }

// set has the clock stand at the time of a call.
func (c *Clock) set(now time.Duration) { c.v.Store(int64(now) << 1) }

// run has the clock go on by itself. It began so long after epoch.
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

// wheel is one more than the calls that a function can leave out at a time.
const wheel = 32

// group are those with an interval. All but the clock is guarded by Ticker.mu.
type group struct {
	interval time.Duration
	slots    [wheel][]*Task // by the number of the call that they wait for
	next     uint64         // number of the next call
	due      time.Duration  // when that is, from epoch
	passed   time.Duration  // by the clock, at the call before
	size     int            // those that have not stopped
	none     chan struct{}
	clock    *Clock

	timer *time.Timer
	rest  int // how many calls from the next one on nobody is woken for
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

// MaxRest is how many calls a function can leave out at a time. More are taken for so many.
const MaxRest = wheel - 1

// put has a task wait for the next call but rest.
func (g *group) put(k *Task, rest int) {
	k.slot = int((g.next + uint64(max(min(rest, MaxRest), 0))) % wheel)
	g.slots[k.slot] = append(g.slots[k.slot], k)
}

// soon has a task wait for the next call, for which somebody is woken then.
func (g *group) soon(k *Task) {
	g.catchUp()
	g.put(k, 0)
	g.wake()
}

// wake has somebody woken for the next call.
func (g *group) wake() {
	if g.rest > 0 {
		g.rest = 0
		g.clock.set(g.passed)
		g.timer.Reset(g.due - time.Since(epoch))
	}
}

// catchUp counts the calls at which nobody was woken.
func (g *group) catchUp() {
	if over := time.Since(epoch) - g.due; g.rest > 0 && over >= 0 {
		g.leaveOut(min(int(over/g.interval)+1, g.rest))
	}
}

// leaveOut counts n of the calls that nobody is woken for.
func (g *group) leaveOut(n int) {
	g.rest -= n
	g.next += uint64(n)
	d := time.Duration(n) * g.interval
	g.due += d
	g.passed += d
}

// sleep has nobody woken before the next call that somebody waits for.
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

// take begins a call, and returns its tasks, in a slice that the caller has for that.
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

// pass counts a call that is so late, and leaves out those that were due meanwhile.
func (g *group) pass(late time.Duration) {
	d := g.interval + late - late%g.interval
	g.next++
	g.due += d
	if late <= lateness*g.interval {
		g.passed += d
	}
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
		if g.catchUp(); k.slot != int(g.next%wheel) {
			g.drop(k)
			g.soon(k)
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
		g.catchUp()
		g.clock.set(g.passed)
		delete(t.groups, k.interval)
		close(g.none)
	}
}

// run calls the functions of a group until it has none.
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
