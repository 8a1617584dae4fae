package host

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/splitnic/splitnic/splitdrv/session"
)

// TestBackoff looks at the bounds of the jitter, which the source of numbers
// below n decides.
func TestBackoff(t *testing.T) {
	const s = time.Second
	for _, most := range []bool{false, true} {
		b := backoff{min: s, max: 5 * s, rand: func(n int64) int64 {
			if most {
				return n - 1
			}
			return 0
		}}
		for i, step := range []struct {
			lasted time.Duration // of a session; negative: there was none
			due    time.Duration // without jitter, and without what the session lasted
		}{
			{-1, s}, {-1, 2 * s}, {-1, 4 * s}, {-1, 5 * s}, {-1, 5 * s},
			{5 * s, 0},                      // long enough to forget the past
			{-1, s}, {0, 2 * s}, {s, 4 * s}, // sessions that end soon are failures
			{4900 * time.Millisecond, 5 * s}, // longer than most pauses would be: hardly any
			{0, 5 * s}, {time.Hour, 0}, {-1, s},
		} {
			got := time.Duration(0)
			want := step.due / 2
			if most {
				want = step.due
			}
			if step.lasted < 0 {
				got = b.failed()
			} else {
				got = b.ended(step.lasted)
				want = max(0, want-step.lasted)
			}
			if got != want {
				t.Errorf("most %t, step %d: %v, want %v", most, i, got, want)
			}
		}
	}
}

// TestBackoffRestarting asks again without growing pauses until an I/O unit would
// have been restarted, and then as always.
func TestBackoffRestarting(t *testing.T) {
	const pause = 100 * time.Millisecond
	b := backoff{min: pause, max: time.Hour, rand: func(n int64) int64 { return n - 1 }}
	for range 2 {
		for sum := time.Duration(0); sum < restartTime; sum += pause {
			if got := b.restarting(); got != pause {
				t.Fatalf("%v after %v, want %v", got, sum, pause)
			}
		}
		for want := pause; want < time.Minute; want *= 2 {
			if got := b.restarting(); got != want {
				t.Fatalf("%v after the time to restart, want %v", got, want)
			}
		}
		b.ended(time.Hour)
	}
}

// TestBackoffRestartsAgain restarts an I/O unit again and again, soon after each
// session has begun: the host does not wait longer for one than for the other.
func TestBackoffRestartsAgain(t *testing.T) {
	const pause, session = 100 * time.Millisecond, 3 * time.Second
	b := backoff{min: pause, max: 5 * time.Second, rand: func(n int64) int64 { return n - 1 }}
	b.failed() // as before the first session
	b.failed()
	for restart := range 20 {
		for away := time.Duration(0); away < time.Second; away += pause {
			if got := b.restarting(); got != pause {
				t.Fatalf("restart %d: %v after %v, want %v", restart, got, away, pause)
			}
		}
		if got := b.ended(session); got != 0 {
			t.Fatalf("restart %d: %v after a session of %v", restart, got, session)
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
