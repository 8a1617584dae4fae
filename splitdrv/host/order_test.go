package host

import (
	"errors"
	"slices"
	"testing"
)

func TestSequence(t *testing.T) {
	for _, c := range []struct {
		n, after int
		want     []int
	}{
		{1, none, []int{0}}, {1, 0, []int{0}},
		{3, none, []int{0, 1, 2}}, {3, 0, []int{1, 2, 0}}, {3, 1, []int{2, 0, 1}}, {3, 2, []int{0, 1, 2}},
	} {
		if got := sequence(c.n, c.after); !slices.Equal(got, c.want) {
			t.Errorf("%d after %d: %v, want %v", c.n, c.after, got, c.want)
		}
	}
	if got := startingWith([]int{2, 0, 1}, 1); !slices.Equal(got, []int{1, 2, 0}) {
		t.Errorf("%v", got)
	}
}

func TestAnother(t *testing.T) {
	h := &Host{cfg: Config{IOUnits: []string{"a", "b", "c"}}}
	for _, c := range []struct {
		addr    string
		present int
		want    int
	}{{"", 0, 1}, {"", 2, 0}, {"a", 2, 0}, {"c", 0, 2}, {"b", 1, none}, {"d", 0, none}} {
		got, err := h.another(c.addr, c.present)
		if got != c.want || (err != nil) != (c.want == none) {
			t.Errorf("%q at %d: %d, %v", c.addr, c.present, got, err)
		}
	}
	h.cfg.IOUnits = []string{"a"}
	for _, addr := range []string{"", "a", "b"} {
		if _, err := h.another(addr, 0); !errors.Is(err, errNoOther) {
			t.Errorf("%q: %v", addr, err)
		}
	}
}

// TestReservable says with which I/O units a session is kept ready.
func TestReservable(t *testing.T) {
	for _, c := range []struct {
		back, standby bool
		unit          int
		want          []int
	}{
		{false, false, 1, nil}, {true, false, 0, nil}, {true, false, 2, []int{0, 1}},
		{false, true, 0, []int{1, 2}}, {false, true, 1, []int{2, 0}}, {true, true, 1, []int{0, 2}},
	} {
		h := &Host{cfg: Config{IOUnits: []string{"a", "b", "c"}, Standby: c.standby}}
		if c.back {
			h.cfg.FailBack = 1
		}
		if got := h.reservable(c.unit); !slices.Equal(got, c.want) {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
