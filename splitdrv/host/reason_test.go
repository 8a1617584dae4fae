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

// TestReasonIsLoggedOnce tries in vain again and again: it is news when it fails for
// another reason, and not when only the numbers in that are others.
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
		unit int
		err  error
		news bool
	}{
		{0, tooOften(237 * time.Millisecond), true},
		{0, tooOften(14 * time.Millisecond), false},
		{0, tooOften(0), false},
		{1, tooOften(100 * time.Millisecond), true},
		{0, full(900), true},
		{0, full(50), false},
		{0, broken(43210, syscall.ECONNRESET), true},
		{0, broken(9, syscall.ECONNRESET), false},
		{0, broken(9, syscall.ECONNREFUSED), true},
		{1, tooOften(90 * time.Second), false},
		{0, &session.UntrustedError{}, true},
		{0, &session.UntrustedError{Reason: session.ErrRevoked}, true},
		{0, fmt.Errorf("no answer over the fabric: %w", context.DeadlineExceeded), true},
		{0, fmt.Errorf("no answer over the fabric: %w; 2", context.DeadlineExceeded), false},
		{0, fmt.Errorf("end: %w", messaging.ErrPeerSilent), true},
		{0, fmt.Errorf("the I/O unit: %w", uplink.ErrNoStandby), true},
		{0, errors.New("another"), true},
		{0, broken(43211, syscall.ECONNRESET), true},
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
