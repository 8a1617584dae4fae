package messaging

import "runtime"

const (
	// idleLooks is after how many looks in vain a polling worker does what can
	// wait, and idleYields after how many times that it lets others run, who may
	// have to do something before there is anything to see.
	idleLooks  = 16
	idleYields = 16
)

// With Config.Poll a channel has one worker, which never sleeps. It is a second way of
// driving the same stages, for the benchmarks alone: tools that poll are what they are
// compared with.

// poll is the goroutine of such a channel.
func (ch *channel) poll() error {
	defer ch.tx.in.release()
	return ch.rx.finish(ch.pollOn())
}

// pollOn goes on until the session has ended. What comes in is answered before the books
// are kept.
func (ch *channel) pollOn() error {
	tx, rx := ch.tx, ch.rx
	for idle := 0; !tx.c.stopped.Load(); idle++ {
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
		if n > 0 {
			if err := rx.renew(n); err != nil {
				return err
			}
			rx.w.spend(n)
		}
		if rx.queue.pending.Load() {
			if err := rx.readQueue(); err != nil {
				return err
			}
			idle = 0
		}
		if idle%idleLooks == idleLooks-1 {
			if err := ch.idleWork(); err != nil {
				return err
			}
		}
		if idle == idleLooks*idleYields {
			idle = 0
			runtime.Gosched()
		}
	}
	return nil
}

// idleWork frees slots, and returns elements for which there was no message
// before. Neither costs anything while there is nothing else to do.
func (ch *channel) idleWork() error {
	ch.tx.w.place()
	if err := ch.tx.reclaim(); err != nil {
		return err
	}
	return ch.rx.giveBack()
}
