package uplink

import (
	"math"
	"testing"
	"time"
)

// TestBackoff tests the pauses with the smallest and the largest jitter, which Rand determines.
func TestBackoff(t *testing.T) {
	const s = time.Second
	for _, most := range []bool{false, true} {
		b := Backoff{Min: s, Max: 5 * s, Rand: func(n int64) int64 {
			if most {
				return n - 1
			}
			return 0
		}}
		for i, step := range []struct {
			lasted time.Duration // duration of a session; negative: there was none
			due    time.Duration // pause without jitter, including the duration of the session
		}{
			{-1, s}, {-1, 2 * s}, {-1, 4 * s}, {-1, 5 * s}, {-1, 5 * s},
			{5 * s, 0},                      // the session was long enough to reset the pauses
			{-1, s}, {0, 2 * s}, {s, 4 * s}, // short sessions count as failures
			{4900 * time.Millisecond, 5 * s}, // hardly any pause remains
			{0, 5 * s}, {time.Hour, 0}, {-1, s},
		} {
			got := time.Duration(0)
			want := step.due / 2
			if most {
				want = step.due
			}
			if step.lasted < 0 {
				got = b.Failed()
			} else {
				got = b.Ended(step.lasted)
				want = max(0, want-step.lasted)
			}
			if got != want {
				t.Errorf("most %t, step %d: %v, want %v", most, i, got, want)
			}
		}
	}
}

// TestBackoffTold expects the next pause to be at least the shortest time that the I/O units have
// advised.
func TestBackoffTold(t *testing.T) {
	const s = time.Second
	b := Backoff{Min: s, Max: 5 * s, Rand: func(int64) int64 { return 0 }}
	for i, step := range []struct {
		told []time.Duration
		want time.Duration
	}{
		{[]time.Duration{3 * s}, 3 * s},
		{nil, s}, // the advice was for the previous round
		{[]time.Duration{3 * s, 2500 * time.Millisecond}, 2500 * time.Millisecond},
		{[]time.Duration{3 * s, 0}, 2500 * time.Millisecond}, // one I/O unit advised no time
		{[]time.Duration{time.Hour}, 2 * (5 * s / 3)},        // room for the random addition
		{[]time.Duration{s}, 2500 * time.Millisecond},        // the pause is longer than the advice
	} {
		for _, after := range step.told {
			b.Advise(after)
		}
		if got := b.Failed(); got != step.want {
			t.Errorf("step %d: %v, want %v", i, got, step.want)
		}
	}
	b = Backoff{Min: s, Max: 5 * s, Rand: func(n int64) int64 { return n - 1 }}
	b.Advise(2 * s)
	if got := b.Failed(); got != 3*s {
		t.Errorf("%v, want 3s", got)
	}
}

// TestBackoffToldTooMuch expects that no advice makes the pause longer than the longest one, with
// its random addition, and that hosts with the same advice come at different times.
func TestBackoffToldTooMuch(t *testing.T) {
	const s, endless = time.Second, math.MaxUint32 * time.Millisecond
	for _, told := range []time.Duration{0, time.Millisecond, 3 * s, 4 * s, 5 * s, time.Hour, endless, math.MaxInt64} {
		var pauses [2]time.Duration
		for i, random := range []func(int64) int64{func(int64) int64 { return 0 }, func(n int64) int64 { return n - 1 }} {
			b := Backoff{Min: s, Max: 5 * s, Rand: random}
			b.Advise(told)
			if pauses[i] = b.Failed(); pauses[i] > 5*s {
				t.Errorf("told %v: a pause of %v", told, pauses[i])
			}
		}
		if pauses[1]-pauses[0] < min(told, 3*s)/4 {
			t.Errorf("told %v: all pauses are between %v and %v", told, pauses[0], pauses[1])
		}
	}
}

// TestBackoffRestarting expects constant pauses for as long as the restart of an I/O unit may take,
// and then growing pauses as usual.
func TestBackoffRestarting(t *testing.T) {
	const pause = 100 * time.Millisecond
	b := Backoff{Min: pause, Max: time.Hour, Rand: func(n int64) int64 { return n - 1 }}
	for range 2 {
		for sum := time.Duration(0); sum < restartTime; sum += pause {
			if got := b.Restarting(); got != pause {
				t.Fatalf("%v after %v, want %v", got, sum, pause)
			}
		}
		for want := pause; want < time.Minute; want *= 2 {
			if got := b.Restarting(); got != want {
				t.Fatalf("%v after the time to restart, want %v", got, want)
			}
		}
		b.Ended(time.Hour)
	}
}

// TestBackoffRestartsAgain has an I/O unit restart many times, soon after each session has begun.
// It expects the pauses to be the same for each restart.
func TestBackoffRestartsAgain(t *testing.T) {
	const pause, session = 100 * time.Millisecond, 3 * time.Second
	b := Backoff{Min: pause, Max: 5 * time.Second, Rand: func(n int64) int64 { return n - 1 }}
	b.Failed() // failures before the first session
	b.Failed()
	for restart := range 20 {
		for away := time.Duration(0); away < time.Second; away += pause {
			if got := b.Restarting(); got != pause {
				t.Fatalf("restart %d: %v after %v, want %v", restart, got, away, pause)
			}
		}
		if got := b.Ended(session); got != 0 {
			t.Fatalf("restart %d: %v after a session of %v", restart, got, session)
		}
	}
}
