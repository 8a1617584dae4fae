package messaging

import "runtime"

const (
	// idleChores is after how many looks in vain a polling worker does what can
	// wait, and idleYields after how many times that it lets others run, who may
	// have to do something before there is anything to see.
	idleChores = 16
	idleYields = 16
)

// poll is the goroutine of a channel whose worker never sleeps. What comes in is
// answered before the books are kept.
func (ch *channel) poll() error {
	tx, rx := ch.tx, ch.rx
	defer rx.abandon()
	for idle := 0; !tx.c.stopped.Load(); idle++ {
		n, err := rx.poll()
		if err != nil {
			return err
		}
		if n > 0 {
			idle = 0
			if err := rx.hand(rx.comps[:n]); err != nil {
				return rx.failed(err)
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
				return rx.failed(err)
			}
			idle = 0
		}
		if idle%idleChores == idleChores-1 {
			if err := ch.chores(); err != nil {
				return err
			}
		}
		if idle == idleChores*idleYields {
			idle = 0
			runtime.Gosched()
		}
	}
	rx.drain()
	return nil
}

// chores frees slots, and returns elements for which there was no message
// before. Neither costs anything while there is nothing else to do.
func (ch *channel) chores() error {
	ch.tx.w.place()
	if err := ch.tx.reclaim(); err != nil {
		return err
	}
	return ch.rx.giveBack()
}
