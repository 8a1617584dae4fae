package control

import (
	"testing"
	"time"
)

// TestSilence checks that silence is measured only by intervals in which a message of the peer
// would have been noticed.
func TestSilence(t *testing.T) {
	var looks, looked uint64
	full := false
	s := silence{interval: time.Second, look: func() uint64 { looks++; return looks },
		looked: func() uint64 { return looked }, full: func() bool { return full }}
	const busy, late = true, 600 * time.Millisecond
	for i, c := range []struct {
		heard  uint64
		late   time.Duration
		behind bool // the handler has not polled since the interval began
		asking bool
		full   bool // no further request can be sent
		want   time.Duration
	}{
		{heard: 0, want: 1 * time.Second},
		{heard: 0, want: 2 * time.Second},
		{heard: 0, late: late, want: 2 * time.Second},
		{heard: 0, behind: busy, want: 2 * time.Second},
		{heard: 0, asking: busy, want: 2 * time.Second},
		{heard: 0, want: 3 * time.Second},
		{heard: 1, want: 0},
		{heard: 1, late: 400 * time.Millisecond, want: 1 * time.Second},
		{heard: 9, late: late, want: 0},
		{heard: 10, behind: busy, want: 0},
		{heard: 10, want: 1 * time.Second},
		{heard: 10, asking: busy, full: true, want: 2 * time.Second},
	} {
		if !c.behind {
			looked = looks
		}
		s.asking.Store(c.asking)
		full = c.full
		if got := s.Tick(time.Second, c.late, c.heard); got != c.want {
			t.Errorf("tick %d: %v, want %v", i, got, c.want)
		}
	}
}

// TestSilenceIsOver expects that the control handler polls once more before the silence is
// found to have lasted too long.
func TestSilenceIsOver(t *testing.T) {
	var looks, looked uint64
	s := silence{interval: time.Second, look: func() uint64 { looks++; return looks },
		looked: func() uint64 { return looked }}
	quiet := func() {
		for s.lasted < 2*time.Second {
			s.Tick(time.Second, 0, s.heard)
			looked = looks
		}
	}
	quiet()
	if s.Over(3*time.Second, 0) || looks != looked {
		t.Error("it was over, or looked at, too soon")
	}
	for range 2 {
		if s.Over(2*time.Second, 0) {
			t.Error("it was over before the handler had looked")
		}
	}
	looked = looks
	if s.Over(2*time.Second, 1) || s.lasted != 0 {
		t.Error("it was over although the handler had found something")
	}
	quiet()
	s.Over(2*time.Second, 1)
	looked = looks
	if !s.Over(2*time.Second, 1) {
		t.Error("it was never over")
	}
}
