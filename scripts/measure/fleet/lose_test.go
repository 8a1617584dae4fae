package fleet

import (
	"testing"
	"time"
)

const long = 2 * time.Minute

// TestLose compares the simulation with results that are known without it.
func TestLose(t *testing.T) {
	small := Model{Units: 20, Hosts: 1000, Listed: 3, MaxHosts: 1000, Session: time.Millisecond, Detect: time.Second}
	with := func(change func(*Model)) Model {
		m := small
		change(&m)
		return m
	}
	for _, c := range []struct {
		name     string
		model    Model
		gone     int
		back     time.Duration
		lost, in int
		most     int           // most hosts of one I/O unit; 0: not checked
		all      time.Duration // Result.All has to be at least this
	}{
		// All hosts go to the same second I/O unit, one after the other.
		{"one", with(func(m *Model) { m.Neighbours = true }), 1, 0, 50, 50, 100, time.Second + 25*time.Millisecond},
		// All hosts but those whose two neighbours are gone, too.
		{"five in a row", with(func(m *Model) { m.Neighbours = true }), 5, 0, 250, 100, 0, time.Second},
		// There are 14 places at each of two I/O units.
		{"no room", with(func(m *Model) { m.Neighbours, m.MaxHosts = true, 64 }), 1, 0, 50, 28, 64, time.Second},
		{"nobody is left", small, 20, 0, 1000, 0, 0, 0},
		{"all come back", small, 20, time.Minute, 1000, 1000, 0, time.Minute},
		{"all processes restart", with(func(m *Model) { m.Gone = ProcessGone }), 20, time.Second, 1000, 1000, 0, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := c.model.Lose(c.gone, c.back, long)
			if r.Lost != c.lost || r.In != c.in || c.most != 0 && r.Most != c.most || r.All < c.all || r.Half > r.All {
				t.Errorf("%+v", r)
			}
		})
	}
	// The list of a host has two of 19 other I/O units, 4 of which are gone, too. Both are gone for
	// one host in 28.5.
	if r := small.Lose(5, 0, long); r.Lost != 250 || r.In < 230 || r.In > 250 {
		t.Errorf("%+v", r)
	}
	if a, b := small.Lose(7, time.Second, long), small.Lose(7, time.Second, long); a != b {
		t.Errorf("the same seed gives %+v and %+v", a, b)
	}
}
