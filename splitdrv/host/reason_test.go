package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/splitnic/splitnic/splitdrv/host/uplink"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// TestReasonIsLoggedOnce has attempts fail many times. It expects a warning if the reason is a new
// one, and a debug message if only the numbers in the reason differ.
func TestReasonIsLoggedOnce(t *testing.T) {
	tooOften := func(d time.Duration) error {
		return fmt.Errorf("open a session: %w", &session.RefusedError{
			Code: session.CodeBusy, Retry: true, Message: fmt.Sprintf("sessions are opened too often: the next one in %v", d),
		})
	}
	broken := func(port int, err error) error {
		return fmt.Errorf("authenticate: %w", &net.OpError{
			Op: "read", Net: "tcp", Source: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 7), Port: port}, Err: err,
		})
	}
	full := func(used int) error {
		return &session.RefusedError{Code: session.CodeFull, Message: fmt.Sprintf("%d sessions", used)}
	}
	s := &sessions{}
	for i, step := range []struct {
		unit string
		err  error
		news bool
	}{
		{"a", tooOften(237 * time.Millisecond), true},
		{"a", tooOften(14 * time.Millisecond), false},
		{"a", tooOften(0), false},
		{"b", tooOften(100 * time.Millisecond), true},
		{"a", full(900), true},
		{"a", full(50), false},
		{"a", broken(43210, syscall.ECONNRESET), true},
		{"a", broken(9, syscall.ECONNRESET), false},
		{"a", broken(9, syscall.ECONNREFUSED), true},
		{"b", tooOften(90 * time.Second), false},
		{"a", &session.UntrustedError{}, true},
		{"a", &session.UntrustedError{Reason: session.ErrRevoked}, true},
		{"a", fmt.Errorf("no answer over the fabric: %w", context.DeadlineExceeded), true},
		{"a", fmt.Errorf("no answer over the fabric: %w; 2", context.DeadlineExceeded), false},
		{"a", fmt.Errorf("end: %w", messaging.ErrPeerSilent), true},
		{"a", fmt.Errorf("the I/O unit: %w", uplink.ErrNoStandby), true},
		{"a", errors.New("another"), true},
		{"a", broken(43211, syscall.ECONNRESET), true},
	} {
		want := slog.LevelDebug
		if step.news {
			want = slog.LevelWarn
		}
		if got := s.level(step.unit, step.err); got != want {
			t.Errorf("%d, %v: %v, want %v", i, step.err, got, want)
		}
	}
}

func TestRestarts(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{fmt.Errorf("connect: %w", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}), true},
		{fmt.Errorf("open: %w", &session.RefusedError{Code: session.CodeShuttingDown}), true},
		{fmt.Errorf("open: %w", &session.RefusedError{Code: session.CodeBusy, Retry: true}), false},
		{&net.OpError{Op: "dial", Err: syscall.EHOSTUNREACH}, false},
		{errors.New("another"), false},
	} {
		if got := restarts(c.err); got != c.want {
			t.Errorf("%v: %t", c.err, got)
		}
	}
}
