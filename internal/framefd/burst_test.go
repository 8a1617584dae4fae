package framefd

import "testing"

func TestBurst(t *testing.T) {
	var b Burst
	for i, step := range []struct {
		limit int // argument of Next
		want  int // expected result of Next
		got   int
		size  int // of each frame
		more  bool
	}{
		{63, 1, 1, 60, true},
		{62, 2, 2, 60, true},
		{60, 4, 4, 1500, true},
		{3, 3, 3, 60, true}, // a small limit does not make the next burst smaller
		{60, 8, 8, 60, true},
		{60, 16, 5, 60, false},
		{60, 5, 5, 60, true},
		{60, 10, 0, 0, false},
		{60, 1, 1, 60, true},
		{60, 2, 2, 9000, false},
		{60, 1, 1, 4095, true},
		{60, 2, 2, 60, true},
		{60, 4, 4, 60, true},
		{60, 8, 8, 60, true},
		{60, 16, 16, 60, true},
		{60, 32, 32, 60, true},
		{200, 64, 64, 60, true},
		{200, 64, 64, 4096, false},
		{200, 1, 1, 4096, false},
	} {
		if n := b.Next(step.limit); n != step.want {
			t.Fatalf("step %d: %d asked for, want %d", i, n, step.want)
		}
		if more := b.Saw(step.want, step.got, step.got*step.size); more != step.more {
			t.Fatalf("step %d: more %t", i, more)
		}
	}
}
