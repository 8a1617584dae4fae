package messaging

import "time"

// Unhold has every worker that waits for the end of a hold look again how long
// that is: see PacedPort. It never waits. It must not be called after Close.
func (c *Conn) Unhold() {
	for _, ch := range c.channels {
		ch.tx.mail.wake.set()
		ch.rx.mail.wake.set()
	}
}

// sleepHeld is the rest of sleep for a port that holds frames back for d.
func (s *sender) sleepHeld(d time.Duration) error {
	s.count.held.Add(1)
	s.dream.held = true
	// Not for frames: each one that came would wake it in vain.
	if err := s.waiters[s.dream.mask&^waitPort].waitFor(d); err != nil {
		return err
	}
	s.w.woke()
	s.drained = false // there may be more than there was
	return s.dream.err
}

// outwait waits until the port has taken everything, or the session ends.
func (r *receiver) outwait() error {
	for len(r.unwritten) > 0 && !r.c.stopped.Load() {
		d := r.hold()
		if d <= 0 {
			r.count.portBusy.Add(1)
			if err := r.full.wait(); err != nil {
				return err
			}
			continue
		}
		r.count.held.Add(1)
		if err := r.held.waitFor(d); err != nil {
			return err
		}
		r.w.woke()
		r.w.turn() // it may take long
		if !r.c.stopped.Load() {
			r.writeMore()
		}
	}
	return nil
}

// hold is how long the port holds frames back, 0 if it is full. What the mail's
// event is raised for from now on may be about that; what it was raised for before
// is seen when there is nothing more to write.
func (r *receiver) hold() time.Duration {
	if r.paced == nil {
		return 0
	}
	r.mail.wake.clear()
	return r.paced.WriteHold()
}

// unheld reports whether to see to a port again before its hold is over.
func (r *receiver) unheld() bool {
	return r.c.stopped.Load() || r.w.called() || r.mail.wake.raised.Load()
}
