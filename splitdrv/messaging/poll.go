package messaging

import (
	"runtime"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
)

const (
	// controlLooks is how many looks at the data channel there are to one at the control
	// channel.
	controlLooks = 64
	// idleLooks is after how many looks in vain a polling worker does what can
	// wait.
	idleLooks = 16
	// renewBatch is how many receives are posted again at a time, unless fewer elements
	// are due to be returned.
	renewBatch = 16
	// A polling worker lets others run, who may have to do something before there is
	// anything to see, after idleYieldLooks looks in vain, or else once in yieldAfter; it
	// looks at the clock once in yieldLooks. A round trip is shorter than that many looks:
	// two workers that yield at once may take each other's goroutine, and then one of them
	// sleeps until it is woken.
	yieldAfter     = time.Millisecond
	yieldLooks     = 256
	idleYieldLooks = 4096
)

// With Config.Poll a channel has one worker, which never sleeps. It is a second way of
// driving the same stages, for the benchmarks alone: tools that poll are what they are
// compared with. The control channel is polled by whichever of these workers comes first,
// so that no handler has to be woken, which would take a processor from one of them.

// poll is the goroutine of such a channel.
func (ch *channel) poll() error {
	defer ch.tx.in.release()
	return ch.rx.finish(ch.pollOn())
}

// pollOn goes on until the session has ended. What comes in is answered before the books
// are kept.
func (ch *channel) pollOn() error {
	tx, rx := ch.tx, ch.rx
	yielded := time.Now()
	used := 0 // receives that are not posted again yet
	for looks, idle := 0, 0; !tx.c.stopped.Load(); looks, idle = looks+1, idle+1 {
		n, err := rx.poll()
		if err != nil {
			return err
		}
		if n > 0 {
			idle = 0
			if err := rx.hand(rx.comps[:n]); err != nil {
				return err
			}
		}
		tx.in.drained = false
		posted := tx.posted
		if _, err := tx.step(); err != nil {
			return err
		}
		if tx.posted != posted {
			idle = 0
		}
		events := rx.queue.pending.Load()
		if used += n; used > 0 && (used >= renewBatch || events || rx.renewsAtOnce(n) || rx.due()) {
			if err := rx.renew(used); err != nil {
				return err
			}
			used = 0
		}
		rx.w.spend(n)
		if events {
			if err := rx.readQueue(); err != nil {
				return err
			}
			idle = 0
		}
		if looks%controlLooks == 0 {
			if err := ch.control.poll(); err != nil {
				return err
			}
		}
		if idle%idleLooks == idleLooks-1 {
			if err := ch.idleWork(); err != nil {
				return err
			}
		}
		if idle%idleYieldLooks == idleYieldLooks-1 || looks%yieldLooks == yieldLooks-1 && time.Since(yielded) >= yieldAfter {
			runtime.Gosched()
			yielded = time.Now()
		}
	}
	return nil
}

// idleWork frees slots, and returns elements for which there was no message
// before. Neither costs anything while there is nothing else to do.
func (ch *channel) idleWork() error {
	ch.tx.w.bindThread()
	if err := ch.tx.reclaim(); err != nil {
		return err
	}
	return ch.rx.giveBack()
}

// renewsAtOnce reports whether the receives of the n completions in hand have to be posted
// again before anything else: those with memory, which differ, and those of messages
// among writes, which are few.
func (r *receiver) renewsAtOnce(n int) bool {
	if r.c.cfg.Mode != protocol.ModeImm {
		return n > 0
	}
	for i := range r.comps[:n] {
		if r.comps[i].Op != fabric.OpRecvWriteImm {
			return true
		}
	}
	return false
}
