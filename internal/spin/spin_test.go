package spin

import (
	"errors"
	"testing"
	"time"
)

// TestWindow expects the length of the polling window after each of some sleeps.
func TestWindow(t *testing.T) {
	const us = time.Microsecond
	for _, c := range []struct {
		name   string
		sleeps []time.Duration
		want   []time.Duration
	}{
		{"short ones", []time.Duration{30 * us, 30 * us, 30 * us, 30 * us},
			[]time.Duration{10 * us, 20 * us, 40 * us, 40 * us}},
		{"up to the longest", []time.Duration{99 * us, 99 * us, 99 * us, 99 * us, 99 * us, 100 * us},
			[]time.Duration{10 * us, 20 * us, 40 * us, 80 * us, 100 * us, 100 * us}},
		{"a long one", []time.Duration{30 * us, 30 * us, 101 * us, 30 * us}, []time.Duration{10 * us, 20 * us, 0, 10 * us}},
		{"only long ones", []time.Duration{time.Second, time.Hour}, []time.Duration{0, 0}},
		{"none at all", []time.Duration{0, 0, 0}, []time.Duration{10 * us, 10 * us, 10 * us}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var w Window
			now := time.Unix(0, 0)
			w.Wake(now, 100*us) // without a Sleep before
			for i, d := range c.sleeps {
				w.Sleep(now)
				now = now.Add(d)
				w.Wake(now, 100*us)
				if got := w.Length(100 * us); got != c.want[i] {
					t.Errorf("after sleep %d: %v, want %v", i, got, c.want[i])
				}
			}
		})
	}
	w := Window{length: 50 * us}
	if got := w.Length(20 * us); got != 20*us {
		t.Errorf("%v, longer than is allowed now", got)
	}
}

// TestLimit has more callers than processors, while other tasks run.
func TestLimit(t *testing.T) {
	broken := errors.New("broken")
	for _, c := range []struct {
		name                   string
		online, most, runnable int
		err                    error
		want                   int // of ten callers; those that may poll do so while others ask
	}{
		{"idle", 8, 7, 1, nil, 7},
		{"idle, and a bound", 8, 3, 1, nil, 3},
		{"two run", 4, 3, 3, nil, 2},
		{"all processors are busy", 2, 2, 3, nil, 0},
		{"more run than there are processors", 2, 2, 30, nil, 0},
		{"this process has one processor", 8, 0, 1, nil, 0},
		{"not even who asks is counted", 4, 3, 0, nil, 3},
		{"nobody knows", 8, 7, 0, broken, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			now := time.Unix(0, 0)
			polling, looks := 0, 0
			l := LimitOf(c.online, c.most, func() (int, error) {
				looks++
				return c.runnable + polling, c.err
			})
			l.now = func() time.Time { return now }
			for range 10 {
				now = now.Add(time.Second)
				if l.Enter() {
					polling++
				}
			}
			if polling != c.want {
				t.Fatalf("%d may poll, want %d", polling, c.want)
			}
			for range polling {
				l.Leave()
			}
			polling = 0
			now = now.Add(time.Second)
			if l.Enter() != (c.want > 0) {
				t.Error("what has left counts still, or counts twice")
			}
			before := looks
			for range 100 {
				l.Enter()
			}
			if looks != before {
				t.Errorf("%d looks at once", looks-before)
			}
		})
	}
}

// TestRunnable reads the number of runnable tasks of this machine, and text in a wrong format.
func TestRunnable(t *testing.T) {
	var l loadavg
	for range 2 {
		if n, err := l.runnable(); err != nil || n < 1 {
			t.Errorf("%d tasks run, %v", n, err)
		}
	}
	if n, err := parseRunnable([]byte("0.20 0.18 0.12 17/80 11206\n")); err != nil || n != 17 {
		t.Errorf("%d, %v", n, err)
	}
	for _, text := range []string{"", "1 2 3", "1 2 3 4", "1 2 3 x/4 5", "\n"} {
		if n, err := parseRunnable([]byte(text)); err == nil {
			t.Errorf("%q is read as %d", text, n)
		}
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = l.runnable() }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkEnter measures the cost of Enter and Leave for a worker, without the polling.
func BenchmarkEnter(b *testing.B) {
	l := NewLimit()
	for b.Loop() {
		if l.Enter() {
			l.Leave()
		}
	}
}

// BenchmarkRunnable measures the cost of reading the number of runnable tasks.
func BenchmarkRunnable(b *testing.B) {
	var l loadavg
	for b.Loop() {
		if _, err := l.runnable(); err != nil {
			b.Fatal(err)
		}
	}
}
