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
	logAgain = 10 * time.Minute
)

// Log bounds the lines in the log that a peer can cause. The zero Log is ready; it
// may be used by several goroutines.
type Log struct {
	mu      sync.Mutex
	lines   *rate.Limiter // nil before the first line
	omitted uint64        // since the last line
	topics  map[any]*topic
}

// topic is what one line was about that is not logged again for a while.
type topic struct {
	logged   time.Time
	repeated uint64 // since then
}

// Log logs a line if it may be logged, and with it how many before it were not.
func (b *Log) Log(l *slog.Logger, level slog.Level, msg string, args ...any) {
	b.log(l, level, nil, msg, args)
}

// Once is Log for what a peer causes over and over: of all that is about the same,
// which is a comparable value, one line is logged in logAgain, and with it how many
// were not.
func (b *Log) Once(about any, l *slog.Logger, level slog.Level, msg string, args ...any) {
	b.log(l, level, about, msg, args)
}

// Forget has Once log everything again.
func (b *Log) Forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forget(func(*topic) bool { return true })
}

func (b *Log) log(l *slog.Logger, level slog.Level, about any, msg string, args []any) {
	ok, repeated, omitted := b.allow(time.Now(), about)
	if !ok {
		return
	}
	if repeated > 0 {
		args = append(args, "repeated", repeated)
	}
	if omitted > 0 {
		args = append(args, "not_logged", omitted)
	}
	l.Log(context.Background(), level, msg, args...)
}

// allow reports whether a line about something, or nil, may be logged now, how many
// about the same were not since its last one, and how many others since the last line.
func (b *Log) allow(now time.Time, about any) (ok bool, repeated, omitted uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.topics[about]
	if t != nil && now.Sub(t.logged) < logAgain {
		t.repeated++
		return false, 0, 0
	}
	if b.lines == nil {
		b.lines = rate.NewLimiter(logRate, logBurst)
	}
	if !b.lines.AllowN(now, 1) {
		b.omitted++
		return false, 0, 0
	}
	if t != nil {
		repeated, t.repeated = t.repeated, 0
	}
	if about != nil {
		b.remember(now, about)
	}
	omitted, b.omitted = b.omitted, 0
	return true, repeated, omitted
}

// remember notes that a line about something is logged. There are no more topics than
// lines in logAgain. The caller holds b.mu.
func (b *Log) remember(now time.Time, about any) {
	if b.topics == nil {
		b.topics = make(map[any]*topic)
	}
	b.forget(func(t *topic) bool { return now.Sub(t.logged) >= logAgain })
	b.topics[about] = &topic{logged: now}
}

// forget drops topics. What was not logged about them is among the omitted lines from
// now on. The caller holds b.mu.
func (b *Log) forget(which func(*topic) bool) {
	for about, t := range b.topics {
		if which(t) {
			b.omitted += t.repeated
			delete(b.topics, about)
		}
	}
}
