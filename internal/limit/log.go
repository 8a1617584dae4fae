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
	logRate  = 1  // lines per second in the long run
	logAgain = 10 * time.Minute
)

// Log limits the lines in the log that a peer can cause. The zero Log is ready for use. It
// may be used by several goroutines.
type Log struct {
	mu      sync.Mutex
	lines   *rate.Limiter // nil before the first line
	omitted uint64        // lines not logged since the last line
	topics  map[any]*topic
}

// topic has the state of a topic of Once. Its next line is logged logAgain after the last one.
type topic struct {
	logged   time.Time
	repeated uint64 // lines not logged since then
}

// Log logs a line if the limit allows it. The line has the number of lines that were not
// logged before it.
func (b *Log) Log(l *slog.Logger, level slog.Level, msg string, args ...any) {
	b.log(l, level, nil, msg, args)
}

// Once is Log for lines that a peer causes repeatedly. about is a comparable value that
// identifies the topic of the line. One line for each topic is logged in logAgain, with the
// number of lines about the topic that were not logged.
func (b *Log) Once(about any, l *slog.Logger, level slog.Level, msg string, args ...any) {
	b.log(l, level, about, msg, args)
}

// Forget makes Once log the next line about each topic again.
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

// allow reports whether a line may be logged now. about is its topic, or nil. If the line may
// be logged, allow also returns how many lines about this topic were not logged since the last
// one about it, and how many other lines were not logged since the last line.
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

// remember records that a line about a topic is logged. There are no more topics than lines
// that can be logged in logAgain. The caller holds b.mu.
func (b *Log) remember(now time.Time, about any) {
	if b.topics == nil {
		b.topics = make(map[any]*topic)
	}
	b.forget(func(t *topic) bool { return now.Sub(t.logged) >= logAgain })
	b.topics[about] = &topic{logged: now}
}

// forget removes topics. The lines about them that were not logged are counted as omitted
// lines from now on. The caller holds b.mu.
func (b *Log) forget(which func(*topic) bool) {
	for about, t := range b.topics {
		if which(t) {
			b.omitted += t.repeated
			delete(b.topics, about)
		}
	}
}
