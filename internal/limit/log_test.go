package limit

import (
	"testing"
	"time"
)

func TestLog(t *testing.T) {
	var b Log
	now := time.Unix(1000, 0)
	lines := func(tries int) (n int, omitted uint64) {
		for range tries {
			ok, _, o := b.allow(now, nil)
			if ok {
				n++
			}
			omitted += o
		}
		return n, omitted
	}
	if n, _ := lines(1000); n != logBurst {
		t.Errorf("%d lines at once, want %d", n, logBurst)
	}
	now = now.Add(3500 * time.Millisecond / logRate)
	if n, omitted := lines(1000); n != 3 || omitted != 1000-logBurst {
		t.Errorf("%d lines after a while, %d were left out before; want 3, %d", n, omitted, 1000-logBurst)
	}
	now = now.Add(time.Hour)
	if n, omitted := lines(1000); n != logBurst || omitted != 997 {
		t.Errorf("%d lines after an hour, %d were left out before; want %d, 997", n, omitted, logBurst)
	}
}

// TestLogOnce logs lines about two topics repeatedly.
func TestLogOnce(t *testing.T) {
	var b Log
	now := time.Unix(1000, 0)
	expect := func(about string, ok bool, repeated, omitted uint64) {
		t.Helper()
		if o, r, n := b.allow(now, about); o != ok || r != repeated || n != omitted {
			t.Errorf("%s at %v: %t, %d, %d; want %t, %d, %d", about, now, o, r, n, ok, repeated, omitted)
		}
	}
	expect("a", true, 0, 0)
	expect("a", false, 0, 0)
	expect("b", true, 0, 0)
	expect("b", false, 0, 0)
	now = now.Add(logAgain - 1)
	expect("a", false, 0, 0)
	now = now.Add(1)
	expect("a", true, 2, 1) // topic b is forgotten: its line is among the omitted ones
	expect("b", true, 0, 0)
	expect("b", false, 0, 0)
	b.Forget()
	expect("a", true, 0, 1)
	for range 2 * logBurst {
		b.allow(now, nil)
	}
	expect("b", false, 0, 0) // limited like any line
	now = now.Add(time.Second / logRate)
	expect("b", true, 0, 2*logBurst-(logBurst-3)+1)
	if now = now.Add(logAgain); len(b.topics) != 2 {
		t.Errorf("%d topics", len(b.topics))
	}
	expect("c", true, 0, 0)
	if len(b.topics) != 1 {
		t.Errorf("%d topics that are logged again in any case", len(b.topics)-1)
	}
}
