package session

import "time"

// allowance is how much may be spent: so much at a time, and so much in the long
// run. It is what bounds the work that a peer can cause. The caller guards it.
type allowance struct {
	most      float64 // that can be saved up
	perSecond float64
	left      float64 // at that time; below 0 after spending more than there was
	at        time.Time
}

func newAllowance(most, perSecond float64, now time.Time) allowance {
	return allowance{most: most, perSecond: perSecond, left: most, at: now}
}

// spend spends n, whether there is so much or not.
func (a *allowance) spend(now time.Time, n float64) {
	a.left = a.by(now) - n
	a.at = now
}

// wait is how long it takes until there is something again, 0 if there is.
func (a *allowance) wait(now time.Time) time.Duration {
	left := a.by(now)
	if left > 0 {
		return 0
	}
	return time.Duration(-left/a.perSecond*float64(time.Second)) + time.Nanosecond
}

// until is how long it takes until there is as much as n, 0 if there is.
func (a *allowance) until(now time.Time, n float64) time.Duration {
	missing := n - a.by(now)
	if missing <= 0 {
		return 0
	}
	return time.Duration(missing/a.perSecond*float64(time.Second)) + time.Nanosecond
}

func (a *allowance) by(now time.Time) float64 {
	return min(a.most, a.left+now.Sub(a.at).Seconds()*a.perSecond)
}
