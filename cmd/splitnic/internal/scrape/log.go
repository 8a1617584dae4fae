package scrape

import (
	"context"
	"log/slog"
	"regexp"

	"github.com/splitnic/splitnic/internal/limit"
)

// messages is the log of the server and of the toolkit. Scrapers cause its lines. So lines of level
// info or below are logged for debugging only, and the others once for each reason, so that they
// do not fill the log.
type messages struct {
	to    *slog.Logger
	lines *limit.Log
}

func newLog(to *slog.Logger) *slog.Logger { return slog.New(&messages{to: to, lines: new(limit.Log)}) }

// serverLog receives the lines of a server's ErrorLog, one in each call.
type serverLog struct{ to *slog.Logger }

// Write implements io.Writer.
func (l serverLog) Write(line []byte) (int, error) {
	l.to.Warn("serving metrics", "err", string(line[:max(len(line)-1, 0)]))
	return len(line), nil
}

// clientPort matches the part that differs between the lines about one scraper.
var clientPort = regexp.MustCompile(`:\d+: `)

// Enabled implements slog.Handler.
func (l *messages) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (l *messages) Handle(_ context.Context, r slog.Record) error {
	about := r.Message
	var args []any
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "err" { // the key that the toolkit uses
			a.Key = "error"
			about += clientPort.ReplaceAllString(a.Value.String(), ": ")
		}
		args = append(args, a)
		return true
	})
	if r.Level <= slog.LevelInfo {
		l.to.Debug("metrics: "+r.Message, args...)
		return nil
	}
	l.lines.Once(about, l.to, r.Level, "metrics: "+r.Message, args...)
	return nil
}

// WithAttrs implements slog.Handler. It is not used.
func (l *messages) WithAttrs([]slog.Attr) slog.Handler { return l }

// WithGroup implements slog.Handler. It is not used.
func (l *messages) WithGroup(string) slog.Handler { return l }
