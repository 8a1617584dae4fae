package messaging

import "runtime"

// idlePolls is after how many looks in vain a polling worker lets others run,
// who may have to do something before there is anything to see.
const idlePolls = 256

// poll is the goroutine of a channel whose worker never sleeps.
func (ch *channel) poll() error {
	for idle := 0; !ch.tx.c.stopped.Load(); {
		ch.tx.w.turn()
		posted := ch.tx.posted
		ch.tx.drained = false
		if _, err := ch.tx.step(); err != nil {
			return err
		}
		worked, err := ch.rx.step()
		if err != nil {
			return ch.rx.failed(err)
		}
		if worked || ch.tx.posted != posted {
			idle = 0
			continue
		}
		// Freeing slots, and returning what could not be returned before, costs
		// nothing now.
		if err := ch.tx.reclaim(); err != nil {
			return err
		}
		if err := ch.rx.giveBack(); err != nil {
			return err
		}
		if idle++; idle == idlePolls {
			idle = 0
			runtime.Gosched()
		}
	}
	return nil
}
