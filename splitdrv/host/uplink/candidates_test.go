package uplink

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestOrder(t *testing.T) {
	for _, c := range []struct{ units, first, after, want string }{
		{"a", None, None, "a"}, {"a", None, "a", "a"},
		{"a b c", None, None, "a b c"}, {"a b c", None, "a", "b c a"}, {"a b c", None, "b", "c a b"},
		{"a b c", None, "c", "a b c"}, {"a b c", "b", "b", "b c a"}, {"a b c", "c", "a", "c b a"},
		{"a b a", None, "a", "b a"},
		// In these rows first or after is not a candidate any more.
		{"a b c", None, "x", "a b c"}, {"a b c", "x", "b", "x c a b"}, {"a b c", "c", "x", "c a b"},
	} {
		units := Distinct(strings.Fields(c.units))
		before := slices.Clone(units)
		if got := strings.Join(units.StartingWith(c.first, c.after), " "); got != c.want || !slices.Equal(units, before) {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

func TestChoose(t *testing.T) {
	units := Candidates{"a", "b", "c"}
	for _, c := range []struct{ addr, inUse, want string }{
		{"", "a", "b"}, {"", "c", "a"}, {"a", "c", "a"}, {"c", "a", "c"}, {"b", "b", None}, {"d", "a", None},
		{"", "x", "a"}, {"x", "x", None}, {"b", "x", "b"},
	} {
		got, err := units.Choose(c.addr, c.inUse)
		if got != c.want || (err != nil) != (c.want == None) {
			t.Errorf("%q at %s: %s, %v", c.addr, c.inUse, got, err)
		}
	}
	for _, addr := range []string{"", "a", "b"} {
		if _, err := units[:1].Choose(addr, "a"); !errors.Is(err, ErrNoOther) {
			t.Errorf("%q: %v", addr, err)
		}
	}
}

// TestForStandby tests the choice of the I/O units with which a session is kept ready.
func TestForStandby(t *testing.T) {
	for _, c := range []struct {
		back, standby     bool
		unit              string
		preferred, others string
	}{
		{false, false, "b", "", ""}, {true, false, "a", "", ""}, {true, false, "c", "a b", ""},
		{false, true, "a", "", "b c"}, {false, true, "b", "", "c a"}, {true, true, "b", "a", "c"},
		// An I/O unit that is not a candidate any more counts as the last one.
		{false, false, "x", "", ""}, {true, false, "x", "a b c", ""}, {false, true, "x", "", "a b c"},
		{true, true, "x", "a b c", ""},
	} {
		got := Candidates{"a", "b", "c"}.ForStandby(c.unit, c.back, c.standby)
		if !slices.Equal(got.Preferred, strings.Fields(c.preferred)) || !slices.Equal(got.Others, strings.Fields(c.others)) {
			t.Errorf("%+v: %+v", c, got)
		}
	}
}
