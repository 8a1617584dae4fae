package bench

import "time"

// progressInterval is the interval at which a measurement reports its progress.
const progressInterval = time.Second

// Progress is the progress of a measurement.
type Progress struct {
	Spec     Spec
	Messages uint64        // timed, or sent if this end only sends
	Time     time.Duration // since the first message, approximately
	Rate     float64       // of messages per second since the last Progress
}

// watch calls f while the measurement runs. The returned function ends this.
func (e *end) watch(f func(Progress)) (stop func()) {
	if f == nil {
		return func() {}
	}
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(progressInterval)
		defer tick.Stop()
		begin := time.Now()
		then, before := begin, uint64(0)
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
			}
			now, count := time.Now(), e.count()
			f(Progress{e.spec, count, now.Sub(begin), float64(count-before) / now.Sub(then).Seconds()})
			then, before = now, count
		}
	}()
	return func() {
		close(quit)
		<-done
	}
}
