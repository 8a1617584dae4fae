package host

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/splitnic/splitnic/splitdrv/session"
)

// TestReasonIsLoggedOnce tries in vain again and again: it is news when the reason
// is another one, and not when only its numbers are others.
func TestReasonIsLoggedOnce(t *testing.T) {
	tooOften := func(d time.Duration) error {
		return fmt.Errorf("open a session: %w", &session.RefusedError{Code: session.CodeBusy, Retry: true, Message: fmt.Sprintf("sessions are opened too often: the next one in %v; stop that", d)})
	}
	broken := func(port int) error {
		return fmt.Errorf("authenticate: %w", &net.OpError{
			Op: "read", Net: "tcp", Source: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 7), Port: port}, Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 7580}, Err: io.EOF,
		})
	}
	full := func(used int) error {
		return &session.RefusedError{Code: session.CodeBusy, Message: fmt.Sprintf("%d bytes of 1000 are in use", used)}
	}
	h := &Host{reasons: map[int]string{}}
	for i, step := range []struct {
		unit int
		err  error
		news bool
	}{
		{0, tooOften(237 * time.Millisecond), true},
		{0, tooOften(14 * time.Millisecond), false},
		{0, tooOften(1250 * time.Millisecond), false},
		{0, tooOften(0), false},
		{1, tooOften(100 * time.Millisecond), true},
		{0, full(900), true},
		{0, full(50), false},
		{0, broken(43210), true},
		{0, broken(9), false},
		{1, tooOften(90 * time.Second), false},
		{0, errors.New("another"), true},
		{0, broken(43211), true},
	} {
		want := slog.LevelDebug
		if step.news {
			want = slog.LevelWarn
		}
		if got := h.level(step.unit, step.err); got != want {
			t.Errorf("%d, %v: %v, want %v", i, step.err, got, want)
		}
	}
}
