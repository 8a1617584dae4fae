package messaging

import (
	"cmp"
	"runtime"
	"time"
)

const (
	// controlPasses is the number of passes of the loop in pollOn of which one also polls the control channel.
	controlPasses = 64
	// idlePasses is the number of passes without a result after which the worker does work
	// that can wait.
	idlePasses = 16
	// renewBatch is how many receives are posted again in one call, unless elements are due
	// to be returned before.
	renewBatch = 16
	// A polling worker yields to other goroutines after idleYieldPasses passes without a
	// result, and otherwise once in yieldAfter. It reads the clock once in yieldPasses. A
	// round trip takes fewer passes than idleYieldPasses: if two workers yield at the same
	// time, each may take the other's goroutine, and then one of them sleeps until it is
	// woken.
	yieldAfter      = time.Millisecond
	yieldPasses     = 256
	idleYieldPasses = 4096
)

// With Config.Poll a channel has one worker, which never sleeps. It goes through the same
// stages as sender and receiver. It exists only for benchmarks, which compare it with other
// tools that poll. The workers also poll the control channel, each when it is free, because
// waking its handler would take a processor from one of them.

// poll is the goroutine of a channel with Config.Poll.
func (ch *channel) poll() error {
	defer ch.tx.Release()
	return ch.rx.Finish(ch.pollOn())
}

// failure returns the error of the next failed work request or receive.
func (ch *channel) failure() error {
	return cmp.Or(ch.tx.Failure(), ch.rx.Failure())
}

// pollOn repeats its loop until the session has ended. It sends frames before it posts
// receives and returns elements, so that answers leave as early as possible.
func (ch *channel) pollOn() error {
	tx, rx := ch.tx, ch.rx
	yielded := time.Now()
	used := 0 // receives to be posted again
	for passes, idle := 0, 0; !ch.stopped.Load(); passes, idle = passes+1, idle+1 {
		n, err := rx.Poll()
		if err != nil {
			return err
		}
		if n > 0 {
			idle = 0
			if err := rx.Deliver(n); err != nil {
				return err
			}
		}
		posted, err := tx.Poll()
		if err != nil {
			return err
		}
		if posted {
			idle = 0
		}
		events := rx.Queue.Pending.Load()
		if used += n; used > 0 && (used >= renewBatch || events || rx.RenewsAtOnce(n) || rx.Due()) {
			if err := rx.Renew(used); err != nil {
				return err
			}
			used = 0
		}
		rx.W.Spend(n)
		if events {
			if err := rx.ReadQueue(); err != nil {
				return err
			}
			idle = 0
		}
		if passes%controlPasses == 0 {
			if err := ch.control.Poll(); err != nil {
				return err
			}
		}
		if idle%idlePasses == idlePasses-1 {
			if err := ch.idleWork(); err != nil {
				return err
			}
		}
		if idle%idleYieldPasses == idleYieldPasses-1 ||
			passes%yieldPasses == yieldPasses-1 && time.Since(yielded) >= yieldAfter {
			runtime.Gosched()
			yielded = time.Now()
		}
	}
	return nil
}

// idleWork frees slots, and returns elements for which no control message was free before.
func (ch *channel) idleWork() error {
	if err := ch.tx.ReclaimIdle(); err != nil {
		return err
	}
	return ch.rx.GiveBack()
}
