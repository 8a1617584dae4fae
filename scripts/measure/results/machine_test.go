package results

import (
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	got, err := parseStat("cpu  1 2 3 100 200 10 20 7 0 0\ncpu0 9 9 9 9 9 9 9 9 0 0\n")
	want := Times{Busy: 360 * time.Millisecond, Stolen: 70 * time.Millisecond}
	if err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{"", "cpu0 1 2 3 4 5 6 7 8\n", "cpu 1 2 3\n", "cpu 1 2 3 x 5 6 7 8 9\n"} {
		if _, err := parseStat(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
	if _, err := Processors(); err != nil {
		t.Error(err)
	}
}
