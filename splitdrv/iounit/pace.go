package iounit

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// pace bounds what others can cause to be logged: a burst, and then a line per
// second. Counters count what is left out as well. The zero pace is ready; it
// may be used by several goroutines.
type pace struct {
	mu     sync.Mutex
	spent  int // lines of the burst
	since  time.Time
	unsaid uint64
}

const (
	paceBurst    = 20
	paceInterval = time.Second
)

// log logs a line if it may be logged, and with it how many were not.
func (p *pace) log(l *slog.Logger, level slog.Level, msg string, args ...any) {
	ok, unsaid := p.allow(time.Now())
	if !ok {
		return
	}
	if unsaid > 0 {
		args = append(args, "not_logged", unsaid)
	}
	l.Log(context.Background(), level, msg, args...)
}

// allow reports whether a line may be logged now, and how many may not have
// been since the last one.
func (p *pace) allow(now time.Time) (ok bool, unsaid uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if regained := int(now.Sub(p.since) / paceInterval); regained > 0 {
		p.spent, p.since = max(p.spent-regained, 0), now
	}
	if p.spent == paceBurst {
		p.unsaid++
		return false, 0
	}
	p.spent++
	unsaid, p.unsaid = p.unsaid, 0
	return true, unsaid
}
