package hosts

import (
	"context"
	"errors"
	"log/slog"
	"regexp"
	"sync"

	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// tally is the log handler of the hosts. It counts what the hosts log.
type tally struct {
	mu      sync.Mutex
	silent  int               // sessions that ended because a host received nothing from the I/O unit
	reasons map[string]uint64 // why hosts got no session, or lost it; numbers are replaced by 0
}

var _ slog.Handler = (*tally)(nil)

// Enabled implements slog.Handler.
func (t *tally) Enabled(context.Context, slog.Level) bool { return true }

// WithAttrs implements slog.Handler.
func (t *tally) WithAttrs([]slog.Attr) slog.Handler { return t }

// WithGroup implements slog.Handler.
func (t *tally) WithGroup(string) slog.Handler { return t }

// Handle implements slog.Handler.
func (t *tally) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		err, ok := a.Value.Any().(error)
		if a.Key != "reason" || !ok {
			return true
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		if errors.Is(err, messaging.ErrPeerSilent) {
			t.silent++
		}
		if t.reasons == nil {
			t.reasons = make(map[string]uint64)
		}
		t.reasons[numbers.ReplaceAllLiteralString(err.Error(), "0")]++
		return false
	})
	return nil
}

var numbers = regexp.MustCompile(`[0-9][0-9.a-zµ:]*`)
