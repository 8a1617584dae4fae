package uplink

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"
)

// TestNoFailovers expects an empty object in JSON, and no null, from a host without fail-overs.
func TestNoFailovers(t *testing.T) {
	b, err := json.Marshal(new(Failovers).Status())
	if want := []byte(`"count":{}`); err != nil || !bytes.Contains(b, want) {
		t.Errorf("%s, %v; want %s in it", b, err, want)
	}
}

// TestFailovers fails over from one I/O unit to another by command, then back because the other one
// dies, with an unused attempt in between, and then reconnects to the same one. It checks the
// record of each fail-over.
func TestFailovers(t *testing.T) {
	const s = time.Second
	at := func(d time.Duration) time.Time { return time.Unix(1000, 0).Add(d) }
	var f Failovers
	if f.Frames(1, 1, 1); f.End("a", nil, at(0)) != nil {
		t.Error("a fail-over before the first session")
	}
	f.Begin("a", ReasonCommand, at(10*s), at(12*s))
	f.Frames(0, 0, 1)
	f.Frames(5, 0, 0)
	stages := []Stage{{"hello", s}}
	done := f.End("b", stages, at(13*s))
	if done == nil || done.From != "a" || done.To != "b" || done.Reason != ReasonCommand || done.At != at(10*s) ||
		done.Took != 3*s || done.Gap != s || len(done.Stages) != 1 || done.Carried != 5 || done.Lost != 1 {
		t.Errorf("%+v", done)
	}
	f.Begin("b", ReasonDied, at(20*s), at(20*s))
	f.Frames(0, 7, 2)
	f.Begin("c", ReasonStart, at(22*s), at(22*s)) // frames stopped at 22 s
	f.Frames(0, 0, 3)
	done = f.End("a", nil, at(25*s))
	if done.From != "b" || done.Reason != ReasonDied || done.Took != 5*s || done.Gap != 3*s || done.Uncertain != 7 ||
		done.Lost != 5 {
		t.Errorf("%+v", done)
	}
	f.Begin("a", ReasonSilent, at(30*s), at(30*s))
	f.End("a", nil, at(31*s))
	got := f.Status()
	if got.Reconnects != 1 || len(got.Count) != 2 || got.Count[ReasonCommand] != 1 || got.Count[ReasonDied] != 1 ||
		got.Carried != 5 || got.Uncertain != 7 || got.Lost != 6 || got.Last.To != "a" {
		t.Errorf("%+v", got)
	}
	got.Count[ReasonDied], got.Last.To = 9, "changed"
	if again := f.Status(); again.Count[ReasonDied] != 1 || again.Last.To != "a" {
		t.Error("the status is not a copy")
	}
}
