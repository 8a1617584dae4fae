package uplink

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// raceText returns actions in readable form.
func raceText(actions []RaceAction) string {
	verbs := map[RaceVerb]string{Dial: "dial", Open: "open", Abandon: "abandon"}
	var out []string
	for _, a := range actions {
		out = append(out, verbs[a.Do]+" "+a.Unit)
	}
	return strings.Join(out, ", ")
}

// addr returns the address of the I/O unit with that number.
func addr(unit int) string { return strconv.Itoa(unit) }

// addrs returns the addresses of the first n I/O units.
func addrs(n int) (c Candidates) {
	for i := range n {
		c = append(c, addr(i))
	}
	return c
}

// longest returns a Backoff whose jitter does not shorten any pause.
func longest(lowest, highest time.Duration) *Backoff {
	return &Backoff{Min: lowest, Max: highest, Rand: func(n int64) int64 { return n - 1 }}
}

// move is an event at a time, and the expected actions.
type move[M, A any] struct {
	at    time.Duration // time of the event since the beginning
	event func(M, time.Time) []A
	want  string
}

type raceMove = move[*Race, RaceAction]

func start(r *Race, now time.Time) []RaceAction    { return r.Start(now) }
func tick(r *Race, now time.Time) []RaceAction     { return r.Tick(now) }
func answered(r *Race, now time.Time) []RaceAction { return r.Answered(now) }
func heard(r *Race, now time.Time) []RaceAction    { return r.Heard(now) }

func dialledIn(unit int, took time.Duration) func(*Race, time.Time) []RaceAction {
	return func(r *Race, now time.Time) []RaceAction { return r.Dialled(now, addr(unit), took) }
}

func refusedBy(unit int) func(*Race, time.Time) []RaceAction {
	return func(r *Race, now time.Time) []RaceAction { return r.DialFailed(now, addr(unit), false) }
}

func away(unit int) func(*Race, time.Time) []RaceAction {
	return func(r *Race, now time.Time) []RaceAction { return r.DialFailed(now, addr(unit), true) }
}

func openFailed(r *Race, now time.Time) []RaceAction { return r.OpenFailed(now, false) }

// TestRace tests the actions after each event while I/O units are tried. A row also checks that
// each Tick with actions is due at its time.
func TestRace(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	for _, c := range []struct {
		name       string
		units      int
		patience   time.Duration
		moves      []raceMove
		over       bool
		restarting bool
	}{
		{"the first one answers", 2, 0, []raceMove{
			{0, start, "dial 0"}, {ms, answered, ""}, {2 * ms, dialledIn(0, ms), "open 0"},
		}, false, true},
		{"one that refuses holds up nobody", 3, 0, []raceMove{
			{0, start, "dial 0"}, {ms, refusedBy(0), "dial 1"}, {2 * ms, refusedBy(1), "dial 2"}, {3 * ms, refusedBy(2), ""},
		}, true, false},
		{"one that says nothing does for 200 ms", 3, 0, []raceMove{
			{0, start, "dial 0"}, {headStart, tick, "dial 1"}, {2 * headStart, tick, "dial 2"},
			{3 * headStart, dialledIn(1, headStart), "open 1"},
		}, false, true},
		{"or for as long as the configuration says", 2, 3 * s, []raceMove{
			{0, start, "dial 0"}, {3 * s, tick, "dial 1"},
		}, false, true},
		{"one whose machine answers has a second", 2, 0, []raceMove{
			{0, start, "dial 0"}, {100 * ms, answered, ""}, {1100 * ms, tick, "dial 1"},
		}, false, true},
		{"nobody else is dialled while a session is opened", 2, 0, []raceMove{
			{0, start, "dial 0"}, {100 * ms, dialledIn(0, ms), "open 0"}, {100*ms + longestSilence, tick, "dial 1"},
		}, false, true},
		{"one that hangs loses to another that can be had", 2, 0, []raceMove{
			{0, start, "dial 0"}, {0, dialledIn(0, ms), "open 0"},
			{s, heard, ""}, {s + longestSilence, tick, "dial 1"},
			{s + longestSilence + ms, dialledIn(1, ms), "abandon 0"},
			{s + longestSilence + 2*ms, openFailed, "open 1"},
		}, false, false},
		{"a slow one has ten times as long as it took", 2, 0, []raceMove{
			{0, start, "dial 0"}, {ms, dialledIn(0, s), "open 0"}, {ms + silences*s, tick, "dial 1"},
		}, false, true},
		{"one that answers after all keeps it", 2, 0, []raceMove{
			{0, start, "dial 0"}, {0, dialledIn(0, ms), "open 0"}, {longestSilence, tick, "dial 1"},
			{longestSilence + ms, heard, ""}, {longestSilence + 2*ms, dialledIn(1, ms), ""},
			{longestSilence + 3*ms, openFailed, "open 1"},
		}, false, false},
		{"an open that fails goes on to the next", 2, 0, []raceMove{
			{0, start, "dial 0"}, {0, dialledIn(0, ms), "open 0"}, {ms, openFailed, "dial 1"}, {2 * ms, refusedBy(1), ""},
		}, true, false},
		{"those that restart are dialled again beside one that says nothing", 2, 0, []raceMove{
			{0, start, "dial 0"}, {headStart, tick, "dial 1"}, {201 * ms, away(1), ""},
			{301 * ms, tick, "dial 1"}, {302 * ms, away(1), ""}, {402 * ms, tick, "dial 1"},
			{403 * ms, dialledIn(1, ms), "open 1"},
		}, false, true},
		{"an answer while a session is opened hurries nobody", 2, 0, []raceMove{
			{0, start, "dial 0"}, {0, dialledIn(0, ms), "open 0"}, {ms, answered, ""}, {longestSilence, tick, "dial 1"},
		}, false, true},
		{"those that restart wait while a session is opened", 2, 0, []raceMove{
			{0, start, "dial 0"}, {headStart, tick, "dial 1"}, {201 * ms, away(1), ""}, {250 * ms, dialledIn(0, ms), "open 0"},
			{301 * ms, tick, ""}, {400 * ms, openFailed, ""},
		}, true, false},
		{"they have no head start again", 4, 0, []raceMove{
			{0, start, "dial 0"}, {headStart, tick, "dial 1"}, {201 * ms, away(1), "dial 2"},
			{301 * ms, tick, "dial 1"}, {302 * ms, away(1), ""}, {401 * ms, tick, "dial 3"},
		}, false, true},
		{"one that is ready is enough", 3, 0, []raceMove{
			{0, start, "dial 0"}, {0, dialledIn(0, ms), "open 0"}, {longestSilence, tick, "dial 1"},
			{longestSilence + ms, dialledIn(1, ms), "abandon 0"}, {longestSilence + 2*ms, openFailed, "open 1"},
		}, false, false},
		{"the only one is dialled again beside a dial that says nothing", 1, 0, []raceMove{
			{0, start, "dial 0"}, {ms, answered, ""}, {ms + longestSilence, tick, "dial 0"},
			{3 * s, dialledIn(0, ms), "open 0"}, {3*s + ms, dialledIn(0, 3*s), ""},
			{3*s + 2*ms, openFailed, "open 0"},
		}, false, false},
		{"and beside a session that is not opened", 1, 0, []raceMove{
			{0, start, "dial 0"}, {0, dialledIn(0, ms), "open 0"}, {longestSilence, tick, ""},
			{2 * longestSilence, tick, "dial 0"},
			{5 * s, dialledIn(0, ms), "abandon 0"}, {5*s + ms, openFailed, "open 0"},
			{5*s + ms + longestSilence, tick, ""}, {5*s + ms + 3*longestSilence, tick, "dial 0"},
		}, false, false},
		{"one that is only slow is not given up at once for itself", 1, 0, []raceMove{
			{0, start, "dial 0"}, {longestSilence, tick, "dial 0"}, {3 * s, dialledIn(0, ms), "open 0"},
			{4 * s, dialledIn(0, ms), ""}, {3*s + longestSilence, tick, ""}, {6 * s, heard, ""},
			{6*s + longestSilence, tick, ""}, {6*s + 3*longestSilence, tick, "abandon 0"},
		}, false, true},
		{"one that answers after all keeps it, also against another attempt", 1, 0, []raceMove{
			{0, start, "dial 0"}, {0, dialledIn(0, ms), "open 0"}, {longestSilence, tick, ""},
			{2 * longestSilence, tick, "dial 0"}, {5 * s, heard, ""}, {6 * s, dialledIn(0, ms), ""},
		}, false, true},
		{"twice at a time, and seldom", 1, 0, []raceMove{
			{0, start, "dial 0"}, {longestSilence, tick, "dial 0"}, {longestSilence + ms, refusedBy(0), ""},
			{3 * longestSilence, tick, "dial 0"}, {7 * longestSilence, tick, ""},
			{8 * longestSilence, refusedBy(0), ""}, {9 * longestSilence, refusedBy(0), ""},
		}, true, false},
		{"all are dialled again, in their order", 2, 0, []raceMove{
			{0, start, "dial 0"}, {headStart, tick, "dial 1"}, {headStart + longestSilence, tick, "dial 0"},
			{headStart + 3*longestSilence, tick, "dial 1"}, {headStart + 7*longestSilence, tick, ""},
		}, false, true},
		{"one that has failed is not", 2, 0, []raceMove{
			{0, start, "dial 0"}, {ms, refusedBy(0), "dial 1"}, {ms + longestSilence, tick, "dial 1"},
		}, false, false},
		{"one of two connections to it is enough", 2, 0, []raceMove{
			{0, start, "dial 0"}, {headStart, tick, "dial 1"}, {headStart + longestSilence, tick, "dial 0"},
			{3 * s, dialledIn(1, ms), "open 1"}, {3*s + ms, dialledIn(0, ms), ""}, {3*s + 2*ms, dialledIn(0, ms), ""},
			{4 * s, openFailed, "open 0"}, {5 * s, openFailed, ""},
		}, true, false},
		{"all restart", 2, 0, []raceMove{
			{0, start, "dial 0"}, {ms, away(0), "dial 1"}, {2 * ms, away(1), ""},
		}, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := NewRace(addrs(c.units).After(None), c.patience, longest(100*ms, 5*s))
			begin := time.Unix(1000, 0)
			for i, m := range c.moves {
				now := begin.Add(m.at)
				if isTick := m.want != "" && fmt.Sprintf("%p", m.event) == fmt.Sprintf("%p", tick); isTick && !r.Wake().Equal(now) {
					t.Errorf("move %d: a tick is due after %v, want %v", i, r.Wake().Sub(begin), m.at)
				}
				if got := raceText(m.event(r, now)); got != m.want {
					t.Fatalf("move %d: %q, want %q", i, got, m.want)
				}
			}
			if r.Over() != c.over || r.Restarting() != c.restarting {
				t.Errorf("over %t, restarting %t", r.Over(), r.Restarting())
			}
		})
	}
}

// TestRaceSparesPauses has the only I/O unit restart. It expects the race to be over without a
// pause taken from the Backoff, because the pause after a race is not part of it.
func TestRaceSparesPauses(t *testing.T) {
	retry, now := longest(time.Second, time.Second), time.Unix(1000, 0)
	r := NewRace(addrs(1), 0, retry)
	r.Start(now)
	if r.DialFailed(now, addr(0), true); !r.Over() || retry.restart != 0 {
		t.Errorf("over %t, after pauses of %v", r.Over(), retry.restart)
	}
}

// TestRaceEnds has all dials fail at once, for all orders of three I/O units. It expects each I/O
// unit to be dialled once, and then the end of the race.
func TestRaceEnds(t *testing.T) {
	for _, order := range [][]string{
		{"a", "b", "c"}, {"a", "c", "b"}, {"b", "a", "c"}, {"b", "c", "a"}, {"c", "a", "b"}, {"c", "b", "a"},
	} {
		r := NewRace(order, 0, longest(time.Second, time.Second))
		now := time.Unix(1000, 0)
		var got []string
		for actions := r.Start(now); len(actions) > 0; {
			if r.Over() || len(actions) != 1 || actions[0].Do != Dial {
				t.Fatalf("%v: %s", order, raceText(actions))
			}
			got = append(got, actions[0].Unit)
			actions = r.DialFailed(now, actions[0].Unit, false)
		}
		if !r.Over() || !slices.Equal(got, order) {
			t.Errorf("%v: over %t after %v", order, r.Over(), got)
		}
	}
}
