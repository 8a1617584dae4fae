// Package journal logs to standard error. If that is the journal of systemd, the lines have
// priorities for `journalctl --priority`.
package journal

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"

	"github.com/coreos/go-systemd/v22/journal"
)

// isJournal reports whether standard error is the journal (JOURNAL_STREAM of systemd.exec(5)).
func isJournal() bool {
	is, err := journal.StderrIsJournalStream()
	return is && err == nil // an error means that there is no standard error
}

// Level is the level of the log of this process, which can change at any time.
var Level slog.LevelVar

// New returns a handler that logs records of Level or above to standard error, as text or JSON.
func New(json bool) slog.Handler { return newHandler(os.Stderr, isJournal(), &Level, json) }

// Error writes a line about an error that ends the process to standard error, in JSON as a record.
func Error(line string, json bool) { writeError(os.Stderr, isJournal(), line, json) }

func writeError(w io.Writer, toJournal bool, line string, json bool) {
	if json {
		slog.New(newHandler(w, toJournal, slog.LevelError, true)).Error(line)
		return
	}
	line = "splitnic: " + line
	if toJournal {
		line = priority(slog.LevelError) + line
	}
	fmt.Fprintln(w, line)
}

func newHandler(w io.Writer, toJournal bool, level slog.Leveler, json bool) slog.Handler {
	options := &slog.HandlerOptions{Level: level}
	var begin *beginner
	if toJournal {
		begin = &beginner{w: w}
		w = begin
		options.ReplaceAttr = withoutTime
	}
	var h slog.Handler = slog.NewTextHandler(w, options)
	if json {
		h = slog.NewJSONHandler(w, options)
	}
	if toJournal {
		h = prefixed{h, begin}
	}
	return h
}

// withoutTime removes the time of a record, because the journal records the time itself.
func withoutTime(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

// priority returns the beginning of a line of a level in the journal (sd-daemon(3)).
func priority(level slog.Level) string {
	switch {
	case level >= slog.LevelError:
		return "<3>"
	case level >= slog.LevelWarn:
		return "<4>"
	case level >= slog.LevelInfo:
		return "<6>"
	}
	return "<7>"
}

// beginner writes a beginning before each line. The caller locks mu before it sets the beginning,
// and unlocks it after the line is written.
type beginner struct {
	mu        sync.Mutex
	w         io.Writer
	beginning string
	line      []byte
}

// Write implements io.Writer. The handlers of slog write one line in each call.
func (b *beginner) Write(line []byte) (int, error) {
	b.line = append(append(b.line[:0], b.beginning...), line...)
	if _, err := b.w.Write(b.line); err != nil {
		return 0, err
	}
	return len(line), nil
}

// prefixed is a handler whose lines begin with the priority of their level.
type prefixed struct {
	slog.Handler
	begin *beginner
}

// Handle implements slog.Handler.
func (p prefixed) Handle(ctx context.Context, r slog.Record) error {
	p.begin.mu.Lock()
	defer p.begin.mu.Unlock()
	p.begin.beginning = priority(r.Level)
	return p.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (p prefixed) WithAttrs(attrs []slog.Attr) slog.Handler {
	return prefixed{p.Handler.WithAttrs(attrs), p.begin}
}

// WithGroup implements slog.Handler.
func (p prefixed) WithGroup(name string) slog.Handler {
	return prefixed{p.Handler.WithGroup(name), p.begin}
}
