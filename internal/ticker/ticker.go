// Package ticker calls functions at regular intervals: all of the same interval from
// one goroutine, with one timer. Where each of many sessions has a timer and a goroutine
// of its own, an idle process is kept awake by them. Calls come at multiples of the interval
// on the clock, so that those of one interval that is a multiple of another come together.
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
}

// group are those with an interval.
type group struct {
	tasks []*Task // guarded by Ticker.mu
	none  chan struct{}
}

// Task is a function that is called.
type Task struct {
	ticker   *Ticker
	interval time.Duration
	do       func(Tick)

	stopped atomic.Bool
	calling sync.Mutex
}

// Every has do called once in each interval; the first call comes when it is the turn
// of those with the same interval. It must not wait for anything, because all others
// wait for it, nor stop its own task.
func (t *Ticker) Every(interval time.Duration, do func(Tick)) *Task {
	task := &Task{ticker: t, interval: interval, do: do}
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.groups[interval]
	if g == nil {
		g = &group{none: make(chan struct{})}
		if t.groups == nil {
			t.groups = make(map[time.Duration]*group)
		}
		t.groups[interval] = g
		go t.run(g, interval)
	}
	g.tasks = append(g.tasks, task)
	return task
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

func (t *Ticker) remove(k *Task) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.groups[k.interval]
	i, last := slices.Index(g.tasks, k), len(g.tasks)-1
	g.tasks[i], g.tasks[last] = g.tasks[last], nil
	if g.tasks = g.tasks[:last]; last == 0 {
		delete(t.groups, k.interval)
		close(g.none)
	}
}

// run calls the functions of a group until it has none.
func (t *Ticker) run(g *group, interval time.Duration) {
	began := time.Now()
	tick := time.NewTicker(began.Truncate(interval).Add(interval).Sub(began.Round(0)))
	defer tick.Stop()
	var tasks []*Task
	for n := uint64(0); ; n++ {
		select {
		case <-g.none:
			return
		case due := <-tick.C:
			if n == 0 {
				tick.Reset(interval)
			}
			t.mu.Lock()
			tasks = append(tasks[:0], g.tasks...)
			t.mu.Unlock()
			now := time.Now()
			for _, k := range tasks {
				k.call(Tick{Now: now, Late: now.Sub(due), N: n})
			}
			clear(tasks)
		}
	}
}

func (k *Task) call(tick Tick) {
	k.calling.Lock()
	defer k.calling.Unlock()
	if !k.stopped.Load() {
		k.do(tick)
	}
}
