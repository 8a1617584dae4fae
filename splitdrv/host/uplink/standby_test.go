package uplink

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// sess is a session with the I/O unit of that address.
type sess string

func (s sess) Unit() string { return string(s) }

type (
	standby     = Standby[sess]
	action      = StandbyAction[sess]
	standbyMove = move[*standby, action]
)

// standbyText returns actions in readable form.
func standbyText(actions []action) (out []string) {
	verbs := map[StandbyVerb]string{
		Prepare: "prepare", AbandonAll: "abandon all", End: "end", Switch: "switch", Report: "report",
	}
	for _, a := range actions {
		out = append(out, strings.TrimSpace(verbs[a.Do]+" "+a.Unit+a.Session.Unit()))
	}
	return out
}

func prepared(unit int) func(*standby, time.Time) []action {
	return func(s *standby, now time.Time) []action { return s.Prepared(now, addr(unit), sess(addr(unit)), nil) }
}

func failed(unit int) func(*standby, time.Time) []action {
	return func(s *standby, now time.Time) []action { return s.Prepared(now, addr(unit), None, errors.New("gone")) }
}

func useless(unit int) func(*standby, time.Time) []action {
	return func(s *standby, now time.Time) []action {
		return s.Prepared(now, addr(unit), None, fmt.Errorf("wrapped: %w", ErrNoStandby))
	}
}

// list returns the addresses of these I/O units.
func list(units []int) (c []string) {
	for _, unit := range units {
		c = append(c, addr(unit))
	}
	return c
}

// from returns which of these I/O units are wanted on standby while the one inUse is in use. With
// failBack, I/O units with lower numbers are preferred to it.
func from(units []int, inUse int, failBack bool) (w Wanted) {
	for _, unit := range units {
		if failBack && unit < inUse {
			w.Preferred = append(w.Preferred, addr(unit))
		} else {
			w.Others = append(w.Others, addr(unit))
		}
	}
	return w
}

func leave(units ...int) func(*standby, time.Time) []action {
	return func(s *standby, now time.Time) []action { return s.Leave(now, list(units)) }
}

// stay returns a call of Stay that wants these I/O units, which are preferred to the one in use.
func stay(units ...int) func(*standby, time.Time) []action {
	return func(s *standby, now time.Time) []action { return s.Stay(now, Wanted{Preferred: list(units)}) }
}

// stayWith returns a call of Stay that wants these I/O units, which are not preferred to the one in
// use.
func stayWith(units ...int) func(*standby, time.Time) []action {
	return func(s *standby, now time.Time) []action { return s.Stay(now, Wanted{Others: list(units)}) }
}

// taken takes the session on standby.
func taken(s *standby, _ time.Time) []action {
	s.Take()
	return nil
}

// TestStandby tests the actions after each event of sessions on standby, while another session is
// in use.
func TestStandby(t *testing.T) {
	const ms, s, hour = time.Millisecond, time.Second, time.Hour
	begin, wake, lost, resume := (*standby).Start, (*standby).Tick, (*standby).Ended, (*standby).Resume
	never := time.Duration(-1)
	for _, c := range []struct {
		name     string
		inUse    int
		failBack time.Duration
		list     []int
		moves    []standbyMove
		next     time.Duration // when a Tick is due at the end, or never
	}{
		{"the first one that can be had", 0, 0, []int{1, 2}, []standbyMove{
			{0, begin, "prepare 1"}, {ms, failed(1), "prepare 2"}, {2 * ms, prepared(2), "abandon all, hold 2"},
		}, never},
		{"none can be had: again, later each time", 0, 0, []int{1, 2}, []standbyMove{
			{0, begin, "prepare 1"}, {0, failed(1), "prepare 2"}, {0, failed(2), "report"},
			{100 * ms, wake, "prepare 1"}, {100 * ms, failed(1), "prepare 2"}, {100 * ms, failed(2), "report"},
		}, 300 * ms},
		{"one that says nothing has another one tried as well", 0, 0, []int{1, 2}, []standbyMove{
			{0, begin, "prepare 1"}, {longestSilence, wake, "prepare 2"}, {3 * s, prepared(2), "abandon all"},
			{4 * s, failed(1), "hold 2"},
		}, never},
		{"nobody else is tried then", 0, 0, []int{1, 2, 3}, []standbyMove{
			{0, begin, "prepare 1"}, {longestSilence, wake, "prepare 2"}, {3 * s, prepared(2), "abandon all"},
			{4 * s, failed(1), "hold 2"},
		}, never},
		{"not to one that is not preferred", 1, 3 * s, []int{0, 2}, []standbyMove{
			{0, begin, "prepare 0"}, {0, failed(0), "prepare 2"}, {0, prepared(2), "abandon all, hold 2"},
		}, 5 * s},
		{"nobody is preferred to the one in use", 0, 3 * s, []int{1, 2}, []standbyMove{
			{0, begin, "prepare 1"}, {0, failed(1), "prepare 2"}, {0, prepared(2), "abandon all, hold 2"},
		}, never},
		{"both come", 0, 0, []int{1, 2}, []standbyMove{
			{0, begin, "prepare 1"}, {longestSilence, wake, "prepare 2"}, {3 * s, prepared(1), "abandon all"},
			{4 * s, prepared(2), "end 2, hold 1"},
		}, never},
		{"those that know no standby are not asked again", 0, 0, []int{1, 2}, []standbyMove{
			{0, begin, "prepare 1"}, {0, useless(1), "prepare 2"}, {0, failed(2), "report"}, {100 * ms, wake, "prepare 2"},
			{100 * ms, useless(2), "report"},
		}, never},
		{"one that has lasted ends: at once again", 0, 0, []int{1}, []standbyMove{
			{0, begin, "prepare 1"}, {0, prepared(1), "abandon all, hold 1"}, {hour, lost, "end 1"}, {hour, wake, "prepare 1"},
		}, hour + longestSilence},
		{"one that has not: after a pause", 0, 0, []int{1}, []standbyMove{
			{0, begin, "prepare 1"}, {0, prepared(1), "abandon all, hold 1"}, {ms, lost, "end 1"},
		}, 100 * ms},
		{"one that has not, after one that has: after a pause", 0, 0, []int{1}, []standbyMove{
			{0, begin, "prepare 1"}, {0, prepared(1), "abandon all, hold 1"}, {hour, lost, "end 1"}, {hour, wake, "prepare 1"},
			{hour, prepared(1), "abandon all, hold 1"}, {hour + ms, lost, "end 1"},
		}, hour + 100*ms},
		{"a better one that has not, after one that has: at once again", 2, 20 * s, []int{0, 1}, []standbyMove{
			{0, begin, "prepare 0"}, {0, failed(0), "prepare 1"}, {0, prepared(1), "abandon all, hold 1"},
			{5 * s, wake, "prepare 0"}, {6 * s, prepared(0), "abandon all, end 1, hold 0"}, {6*s + ms, lost, "end 0"},
		}, 6*s + ms},
		{"back to a preferred one", 1, 10 * s, []int{0}, []standbyMove{
			{0, begin, "prepare 0"}, {ms, prepared(0), "abandon all, hold 0"}, {10*s + ms, wake, "switch 0"},
			{10*s + 2*ms, resume, ""}, // the switch has failed
		}, 10*s + 2*ms},
		{"a still better one meanwhile", 2, 20 * s, []int{0, 1}, []standbyMove{
			{0, begin, "prepare 0"}, {0, failed(0), "prepare 1"}, {0, prepared(1), "abandon all, hold 1"},
			{5 * s, wake, "prepare 0"}, {6 * s, failed(0), ""},
			{11 * s, wake, "prepare 0"}, {12 * s, prepared(0), "abandon all, end 1, hold 0"},
			{32 * s, wake, "switch 0"},
		}, never},
		{"one that is not preferred waits for those that are", 1, 20 * s, []int{0, 2}, []standbyMove{
			{0, begin, "prepare 0"}, {0, failed(0), "prepare 2"}, {0, prepared(2), "abandon all, hold 2"},
			{5 * s, wake, "prepare 0"}, {6 * s, lost, "end 2, abandon all"}, {6 * s, failed(0), ""},
		}, 6 * s},
		{"it ends while the better one comes", 1, 20 * s, []int{0, 2}, []standbyMove{
			{0, begin, "prepare 0"}, {0, failed(0), "prepare 2"}, {0, prepared(2), "abandon all, hold 2"},
			{5 * s, wake, "prepare 0"}, {6 * s, lost, "end 2, abandon all"}, {6 * s, prepared(0), "abandon all, hold 0"},
		}, 26 * s},
		{"left for the session on standby", 0, 0, []int{1, 2}, []standbyMove{
			{0, begin, "prepare 1"}, {0, prepared(1), "abandon all, hold 1"}, {ms, leave(1, 2), "switch 1"},
		}, never},
		{"left without a session on standby", 0, 0, nil, []standbyMove{
			{0, begin, ""}, {ms, leave(1, 2), "prepare 1"}, {ms, failed(1), "prepare 2"},
			{2 * ms, prepared(2), "abandon all, switch 2"},
		}, never},
		{"left while a session is prepared", 0, 0, []int{1}, []standbyMove{
			{0, begin, "prepare 1"}, {ms, leave(1, 2), ""}, {2 * ms, prepared(1), "abandon all, switch 1"},
		}, never},
		{"left while a better one is looked for in vain", 2, 20 * s, []int{0, 1}, []standbyMove{
			{0, begin, "prepare 0"}, {0, failed(0), "prepare 1"}, {0, prepared(1), "abandon all, hold 1"},
			{5 * s, wake, "prepare 0"}, {6 * s, leave(0, 1), ""}, {6 * s, failed(0), "switch 1"},
		}, never},
		{"left, and none can be had: again", 0, 0, nil, []standbyMove{
			{0, begin, ""}, {0, leave(1, 2), "prepare 1"}, {0, failed(1), "prepare 2"}, {0, failed(2), "report"},
			{100 * ms, wake, "prepare 1"}, {100 * ms, prepared(1), "abandon all, switch 1"},
		}, never},
		{"left in vain: again", 0, 0, nil, []standbyMove{
			{0, begin, ""}, {0, leave(1), "prepare 1"}, {0, prepared(1), "abandon all, switch 1"},
			{0, resume, ""}, {100 * ms, wake, "prepare 1"},
		}, 100*ms + longestSilence},
		{"there is no other one to leave for", 0, 0, nil, []standbyMove{{0, begin, ""}, {0, leave(), "report"}}, never},
		{"not left any more, and nothing is wanted on standby", 0, 0, nil, []standbyMove{
			{0, begin, ""}, {0, leave(1), "prepare 1"}, {0, failed(1), "report"}, {ms, stay(), ""},
		}, never},
		{"not left any more while a session is prepared that nobody wants", 0, 0, nil, []standbyMove{
			{0, begin, ""}, {0, leave(1), "prepare 1"}, {ms, stay(), ""}, {2 * ms, prepared(1), "abandon all, end 1"},
		}, never},
		{"not left any more while a session is prepared that nobody wants, but another one", 1, 10 * s, []int{0},
			[]standbyMove{
				{0, begin, "prepare 0"}, {0, failed(0), "report"}, {ms, leave(2, 0), "prepare 2"}, {ms, stay(0), ""},
				{2 * ms, prepared(2), "abandon all, end 2, prepare 0"}, {3 * ms, prepared(0), "abandon all, hold 0"},
			}, 10*s + 3*ms},
		{"another list while a better one is prepared", 2, 20 * s, []int{0, 1}, []standbyMove{
			{0, begin, "prepare 0"}, {0, failed(0), "prepare 1"}, {0, prepared(1), "abandon all, hold 1"},
			{5 * s, wake, "prepare 0"}, {6 * s, stay(1), ""}, {7 * s, prepared(0), "abandon all, end 0"},
			{20 * s, wake, "switch 1"},
		}, never},
		{"another list while a better one is prepared, and the session ends", 2, 20 * s, []int{0, 1}, []standbyMove{
			{0, begin, "prepare 0"}, {0, failed(0), "prepare 1"}, {0, prepared(1), "abandon all, hold 1"},
			{5 * s, wake, "prepare 0"}, {6 * s, stay(1), ""}, {7 * s, lost, "end 1, abandon all"},
			{8 * s, prepared(0), "abandon all, end 0"}, {8 * s, wake, "prepare 1"},
		}, 8*s + longestSilence},
		{"not left any more, and a session is wanted", 1, 10 * s, []int{0}, []standbyMove{
			{0, begin, "prepare 0"}, {0, failed(0), "report"}, {ms, leave(0, 2), "prepare 0"}, {ms, stay(0), ""},
			{2 * ms, prepared(0), "abandon all, hold 0"},
		}, 10*s + 2*ms},
		{"not left any more with a session that nobody wants, while a better one is looked for", 2, 9 * s, []int{0, 1},
			[]standbyMove{
				{0, begin, "prepare 0"}, {0, failed(0), "prepare 1"}, {0, prepared(1), "abandon all, hold 1"},
				{5 * s, wake, "prepare 0"}, {6 * s, leave(0, 1), ""}, {6 * s, stay(), ""}, {7 * s, failed(0), "end 1, report"},
			}, never},
		{"not left any more with a session that another list has", 1, 10 * s, []int{0, 2}, []standbyMove{
			{0, begin, "prepare 0"}, {0, failed(0), "prepare 2"}, {0, prepared(2), "abandon all, hold 2"},
			{ms, stay(0), "end 2, prepare 0"},
		}, ms + longestSilence},
		{"there is a new one, which is preferred", 1, 10 * s, nil, []standbyMove{
			{0, begin, ""}, {s, stay(0), "prepare 0"}, {2 * s, prepared(0), "abandon all, hold 0"}, {12 * s, wake, "switch 0"},
		}, never},
		{"one is not preferred any more", 1, 10 * s, []int{0}, []standbyMove{
			{0, begin, "prepare 0"}, {0, prepared(0), "abandon all, hold 0"}, {s, stayWith(2, 0), ""},
		}, never},
		{"one goes on to be preferred", 1, 10 * s, []int{0}, []standbyMove{
			{0, begin, "prepare 0"}, {0, prepared(0), "abandon all, hold 0"}, {s, stay(0), ""}, {10 * s, wake, "switch 0"},
		}, never},
		{"there is one that is preferred to the one on standby", 2, 20 * s, []int{1}, []standbyMove{
			{0, begin, "prepare 1"}, {0, prepared(1), "abandon all, hold 1"}, {s, stay(0, 1), ""},
			{6 * s, wake, "prepare 0"}, {7 * s, prepared(0), "abandon all, end 1, hold 0"},
		}, 27 * s},
		{"none is there any more", 0, 0, []int{1}, []standbyMove{
			{0, begin, "prepare 1"}, {0, prepared(1), "abandon all, hold 1"}, {s, stay(), "end 1"},
		}, never},
		{"a preferred one is not there any more", 1, 10 * s, []int{0}, []standbyMove{
			{0, begin, "prepare 0"}, {0, prepared(0), "abandon all, hold 0"}, {s, stay(), "end 0"},
		}, never},
		{"a preferred one is not there any more when a better one is looked for", 2, 20 * s, []int{0, 1}, []standbyMove{
			{0, begin, "prepare 0"}, {0, failed(0), "prepare 1"}, {0, prepared(1), "abandon all, hold 1"},
			{5 * s, wake, "prepare 0"}, {6 * s, stay(), ""}, {7 * s, failed(0), "end 1, report"},
		}, never},
		{"it is taken: at once again if it has lasted", 0, 0, []int{1, 2}, []standbyMove{
			{0, begin, "prepare 1"}, {0, prepared(1), "abandon all, hold 1"}, {hour, taken, ""}, {hour, resume, ""},
			{hour, wake, "prepare 1"},
		}, hour + longestSilence},
		{"it is taken, and not used when it would be", 1, 10 * s, []int{0}, []standbyMove{
			{0, begin, "prepare 0"}, {0, prepared(0), "abandon all, hold 0"}, {ms, taken, ""}, {10 * s, wake, ""},
		}, never},
		{"it is taken while a better one is looked for", 1, 20 * s, []int{0, 2}, []standbyMove{
			{0, begin, "prepare 0"}, {0, failed(0), "prepare 2"}, {0, prepared(2), "abandon all, hold 2"},
			{5 * s, wake, "prepare 0"}, {6 * s, taken, ""}, {6 * s, resume, ""}, {7 * s, failed(0), ""},
		}, 7 * s},
		{"it is taken, and another one is there already", 1, 20 * s, []int{0, 2}, []standbyMove{
			{0, begin, "prepare 0"}, {0, failed(0), "prepare 2"}, {0, prepared(2), "abandon all, hold 2"},
			{5 * s, wake, "prepare 0"}, {6 * s, taken, ""}, {6 * s, prepared(0), "abandon all, hold 0"}, {6 * s, resume, ""},
		}, 26 * s},
		{"none is wanted any more while sessions are prepared", 0, 0, []int{1, 2, 3}, []standbyMove{
			{0, begin, "prepare 1"}, {longestSilence, wake, "prepare 2"}, {2 * longestSilence, wake, "prepare 3"},
			{5 * s, prepared(2), "abandon all"}, {6 * s, stay(), ""}, {6 * s, failed(1), ""},
			{6 * s, prepared(3), "end 3, end 2"},
		}, never},
		{"none is wanted any more after it was taken", 0, 0, []int{1, 2}, []standbyMove{
			{0, begin, "prepare 1"}, {0, prepared(1), "abandon all, hold 1"}, {hour, taken, ""}, {hour, stay(), ""},
			{hour, resume, ""},
		}, never},
		{"left, and there is a new one", 0, 0, nil, []standbyMove{
			{0, begin, ""}, {0, leave(), "report"}, {s, leave(1), "prepare 1"},
			{s, prepared(1), "abandon all, switch 1"},
		}, never},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := NewStandby[sess](from(c.list, c.inUse, c.failBack > 0), c.failBack, 0, longest(100*ms, 5*s))
			zero, held := time.Unix(1000, 0), sess(None)
			for i, m := range c.moves {
				did := standbyText(m.event(k, zero.Add(m.at)))
				if now := k.Held(); now != held {
					if held = now; held != None {
						did = append(did, "hold "+string(held))
					}
				}
				if got := strings.Join(did, ", "); got != m.want {
					t.Fatalf("move %d: %q, want %q", i, got, m.want)
				}
			}
			next := never
			if w := k.Wake(); !w.IsZero() {
				next = w.Sub(zero)
			}
			if next != c.next {
				t.Errorf("a tick is due after %v, want %v", next, c.next)
			}
		})
	}
}

// TestWhy expects Why to return the first I/O unit that has failed, with its error.
func TestWhy(t *testing.T) {
	k := NewStandby[sess](Wanted{Others: []string{"b", "a"}}, 0, 0, longest(time.Second, time.Second))
	now := time.Unix(1000, 0)
	if unit, err := k.Why(); unit != None || err != nil {
		t.Errorf("%s, %v before anything", unit, err)
	}
	k.Start(now)
	k.Prepared(now, "b", None, ErrNoStandby)
	k.Prepared(now, "a", None, errors.New("gone"))
	if unit, err := k.Why(); unit != "b" || !errors.Is(err, ErrNoStandby) {
		t.Errorf("%s, %v", unit, err)
	}
}
