package messaging

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/splitnic/splitnic/internal/ticker"
)

// StartAt makes the data channels number their writes as if so many had been
// made. Before Start only.
func (c *Conn) StartAt(writes uint32) {
	for _, ch := range c.channels {
		ch.tx.posted, ch.tx.completed, ch.tx.signaled = writes, writes, writes
	}
}

// Remembered is how many elements there are of the pools of the peer's that the
// Conn knows of.
func (c *Conn) Remembered() int {
	c.pools.mu.Lock()
	defer c.pools.mu.Unlock()
	return c.pools.pools.Remembered()
}

// SetClock gives a configuration another clock for what is lent on request.
func (c *Config) SetClock(now func() time.Time) { c.now = now }

// Assign assigns a data channel to a handler.
func (c *Conn) Assign(channel, handler int) error {
	return c.change(HandlerChange{Assign: map[int]int{channel: handler}})
}

// SetHandler changes the handler that has h's number.
func (c *Conn) SetHandler(h Handler) error {
	if h.Budget == 0 {
		h.Budget = DefaultBudget
	}
	return c.change(HandlerChange{Handlers: []HandlerPatch{{
		Number: h.Number, CPUs: &h.CPUs, Priority: &h.Priority, Budget: &h.Budget, Spin: &h.Spin,
		Adaptive: &h.Adaptive,
	}}})
}

func (c *Conn) change(change HandlerChange) error {
	g, err := c.Handling().Change(change)
	if err != nil {
		return err
	}
	return c.SetHandling(g)
}

// SetBeats gives a configuration a clock for its keep-alives, which Beat advances.
func (c *Config) SetBeats(clock *ticker.Clock) { c.clock = clock }

// Pass has a part of the interval of keep-alives pass.
func (c *Conn) Pass() { c.clock.Advance(c.signs.part) }

// Beat has the keep-alives looked at, the nth time, and returns how many further beats could
// be left out.
func (c *Conn) Beat(n uint64) (rest int) { return c.signs.check(ticker.Tick{N: n}) }

// Looked is an error until the control handler has had the look that was asked for.
func (c *Conn) Looked() error {
	if wanted, looked := c.control.wanted.Load(), c.control.looked.Load(); looked < wanted {
		return fmt.Errorf("%d looks of %d", looked, wanted)
	}
	return nil
}

// Answered is an error while requests are unanswered.
func (c *Conn) Answered() error {
	if n := len(c.requests.slots); n > 0 {
		return fmt.Errorf("%d requests are unanswered", n)
	}
	return nil
}

// StopPoolBeat has the pools looked after by LookAtPools alone.
func (c *Conn) StopPoolBeat() { c.pools.beat.Load().Stop() }

// LookAtPools is one look of the pool manager's, and reports whether the next ones may be left
// out.
func (c *Conn) LookAtPools() (quiet bool, err error) { return c.pools.look() }

// PoolsRest reports whether the pool manager's looks are left out.
func (c *Conn) PoolsRest() bool { return c.pools.resting.Load() }

// CountPoolBeats counts how often there may have been a look at the pools, until stop.
func (c *Conn) CountPoolBeats(n *atomic.Uint64) (stop func()) {
	return poolBeats.Every(poolInterval(&c.cfg), func(ticker.Tick) int { n.Add(1); return 0 }).Stop
}
