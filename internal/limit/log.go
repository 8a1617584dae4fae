package limit

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	logBurst = 20 // lines
	logRate  = 1  // lines in a second in the long run
)

// Log bounds the lines in the log that a peer can cause. The zero Log is ready; it
// may be used by several goroutines.
type Log struct {
	mu      sync.Mutex
	lines   *rate.Limiter // nil before the first line
	omitted uint64        // since the last line
}

// Log logs a line if it may be logged, and with it how many before it were not.
func (b *Log) Log(l *slog.Logger, level slog.Level, msg string, args ...any) {
	ok, omitted := b.allow(time.Now())
	if !ok {
		return
	}
	if omitted > 0 {
		args = append(args, "not_logged", omitted)
	}
	l.Log(context.Background(), level, msg, args...)
}

// allow reports whether a line may be logged now, and how many may not have been
// since the last one.
func (b *Log) allow(now time.Time) (ok bool, omitted uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lines == nil {
		b.lines = rate.NewLimiter(logRate, logBurst)
	}
	if !b.lines.AllowN(now, 1) {
		b.omitted++
		return false, 0
	}
	omitted, b.omitted = b.omitted, 0
	return true, omitted
}
