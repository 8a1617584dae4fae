// Package pace bounds what others can cause: lines in the log, and work.
package pace

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Pace lets a burst pass, and then one in a second. Counters count what is left
// out as well. The zero Pace is ready; it may be used by several goroutines.
type Pace struct {
	mu     sync.Mutex
	spent  int // of the burst
	since  time.Time
	unsaid uint64
}

const (
	// Burst is how many pass at once.
	Burst = 20
	// Interval is after how long another one may pass.
	Interval = time.Second
)

// Log logs a line if it may be logged, and with it how many were not.
func (p *Pace) Log(l *slog.Logger, level slog.Level, msg string, args ...any) {
	ok, unsaid := p.Allow(time.Now())
	if !ok {
		return
	}
	if unsaid > 0 {
		args = append(args, "not_logged", unsaid)
	}
	l.Log(context.Background(), level, msg, args...)
}

// Allow reports whether one may pass now, and how many may not have since the
// last one.
func (p *Pace) Allow(now time.Time) (ok bool, unsaid uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if regained := int(now.Sub(p.since) / Interval); regained > 0 {
		p.spent, p.since = max(p.spent-regained, 0), now
	}
	if p.spent == Burst {
		p.unsaid++
		return false, 0
	}
	p.spent++
	unsaid, p.unsaid = p.unsaid, 0
	return true, unsaid
}
