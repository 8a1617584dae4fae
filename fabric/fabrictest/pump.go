package fabrictest

import (
	"time"

	"github.com/splitnic/splitnic/fabric"
)

// forever means that the pump waits for a kick, without a time-out.
const forever time.Duration = -1

// runPump executes the pending requests in order, until none is left or q is closed.
func (q *qp) runPump() {
	defer q.pumps.Done()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	q.sq.Lock()
	for {
		switch st := q.state.Load(); {
		case st == stateClosed:
			q.pending = nil
		case st == stateError:
			q.flushPending()
		}
		if len(q.pending) == 0 {
			q.pending = nil
			q.pumping = false
			q.sq.Unlock()
			return
		}
		wait := q.step()
		if wait == 0 {
			continue
		}
		q.sq.Unlock()
		if wait == forever {
			<-q.wake
		} else {
			timer.Reset(wait)
			select {
			case <-q.wake:
			case <-timer.C:
			}
		}
		q.sq.Lock()
	}
}

// step tries to execute the oldest request. It returns 0 if the request is complete, and otherwise
// the time after which to try again if there is no kick. q.sq is held.
func (q *qp) step() time.Duration {
	p := q.other()
	if q.node.stall.Load() || p != nil && p.node.stall.Load() {
		return forever
	}
	w := &q.pending[0]
	now := time.Now()
	if d := w.due.Sub(now); d > 0 {
		return d
	}
	status, o := q.execute(w)
	var wait time.Duration
	switch o {
	case notReady:
		status, wait = q.waitReceiver(w, now)
	case noAnswer:
		status, wait = q.waitAnswer(w, now)
	case done:
	}
	if wait == 0 {
		q.complete(status)
	}
	return wait
}

// complete removes the oldest request from the queue and completes it.
func (q *qp) complete(status fabric.Status) {
	w := q.pending[0]
	q.pending[0] = work{}
	q.pending = q.pending[1:]
	q.finish(&w, status)
}

// waitReceiver counts a try without a posted receive. It returns the time to wait, or 0 and the
// final status.
func (q *qp) waitReceiver(w *work, now time.Time) (fabric.Status, time.Duration) {
	if q.timing.RNRRetry == 7 {
		if w.rnrTries == 0 {
			w.rnrTries++
			q.sent.RNR++
		}
		return 0, forever
	}
	return q.again(w, now, &w.rnrTries, &q.sent.RNR, int(q.timing.RNRRetry), rnrTime(q.timing.MinRNRTimer),
		fabric.StatusRNRRetryExcErr)
}

// waitAnswer counts a try without an answer. Its results are those of waitReceiver.
func (q *qp) waitAnswer(w *work, now time.Time) (fabric.Status, time.Duration) {
	d := 4096 * time.Nanosecond << q.timing.Timeout
	return q.again(w, now, &w.deadTries, &q.sent.Retries, int(q.timing.RetryCount), d, fabric.StatusRetryExcErr)
}

// again counts a try, unless a kick has ended the wait after the try before early. It returns the
// time until the next try, or last and 0 if there is none.
func (q *qp) again(
	w *work, now time.Time, tries *int, count *uint64, retries int, interval time.Duration, last fabric.Status,
) (fabric.Status, time.Duration) {
	if d := w.next.Sub(now); d > 0 {
		return 0, d
	}
	if *tries > retries {
		return last, 0
	}
	*tries++
	*count++
	d := max(time.Duration(float64(interval)*q.net.scale), time.Nanosecond)
	w.next = now.Add(d)
	return 0, d
}

// rnrTime decodes the code of a receiver-not-ready timer, as the InfiniBand specification does.
// Code 1 is 0.01 ms, and code 0 the longest time.
func rnrTime(code uint8) time.Duration {
	const unit = 10 * time.Microsecond
	switch {
	case code == 0:
		return unit << 16
	case code == 1:
		return unit
	case code%2 == 0:
		return unit << (code / 2)
	default:
		return unit << (code / 2) * 3 / 2
	}
}

// hold appends the request to the pending ones, and starts the pump. q.sq is held.
func (q *qp) hold(w *work) {
	kept := *w
	kept.more = nil
	if w.Flags&fabric.Inline == 0 || q.net.adapter.LateInline {
		kept.more = append(kept.more, w.more...)
	} else if w.size != 0 {
		kept.data = make([]byte, w.size)
		q.gather(kept.data, w)
	}
	q.pending = append(q.pending, kept)
	if !q.pumping && q.state.Load() != stateClosed {
		q.pumping = true
		q.pumps.Add(1)
		go q.runPump()
	}
}
