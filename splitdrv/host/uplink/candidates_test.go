package uplink

import (
	"errors"
	"slices"
	"testing"
)

func TestOrder(t *testing.T) {
	for _, c := range []struct {
		n, first, after int
		want            []int
	}{
		{1, None, None, []int{0}}, {1, None, 0, []int{0}},
		{3, None, None, []int{0, 1, 2}}, {3, None, 0, []int{1, 2, 0}}, {3, None, 1, []int{2, 0, 1}},
		{3, None, 2, []int{0, 1, 2}}, {3, 1, 1, []int{1, 2, 0}}, {3, 2, 0, []int{2, 1, 0}},
	} {
		if got := make(Candidates, c.n).StartingWith(c.first, c.after); !slices.Equal(got, c.want) {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

func TestChoose(t *testing.T) {
	units := Candidates{"a", "b", "c"}
	for _, c := range []struct {
		addr  string
		inUse int
		want  int
	}{{"", 0, 1}, {"", 2, 0}, {"a", 2, 0}, {"c", 0, 2}, {"b", 1, None}, {"d", 0, None}} {
		got, err := units.Choose(c.addr, c.inUse)
		if got != c.want || (err != nil) != (c.want == None) {
			t.Errorf("%q at %d: %d, %v", c.addr, c.inUse, got, err)
		}
	}
	for _, addr := range []string{"", "a", "b"} {
		if _, err := units[:1].Choose(addr, 0); !errors.Is(err, ErrNoOther) {
			t.Errorf("%q: %v", addr, err)
		}
	}
}

// TestForStandby says with which I/O units a session is kept ready.
func TestForStandby(t *testing.T) {
	for _, c := range []struct {
		back, standby bool
		unit          int
		want          []int
	}{
		{false, false, 1, nil}, {true, false, 0, nil}, {true, false, 2, []int{0, 1}},
		{false, true, 0, []int{1, 2}}, {false, true, 1, []int{2, 0}}, {true, true, 1, []int{0, 2}},
	} {
		if got := make(Candidates, 3).ForStandby(c.unit, c.back, c.standby); !slices.Equal(got, c.want) {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
