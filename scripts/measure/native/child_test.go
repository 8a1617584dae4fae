package native

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// still is a mover that moves nothing.
type still struct {
	c   counters
	err error
}

func (s *still) counters() (counters, error) { return s.c, s.err }
func (s *still) close() error                { return nil }

func TestCarryOut(t *testing.T) {
	moved := counters{Frames: [2]uint64{1, 2}, Bytes: [2]uint64{3, 4}, Refused: 5}
	profile := filepath.Join(t.TempDir(), "profile")
	var out strings.Builder
	in := "stats\nprofile " + profile + "\nunprofile\nnonsense\nprofile /nowhere/at/all\n"
	if err := carryOut(&still{c: moved}, strings.NewReader(in), &out); err != nil {
		t.Fatal(err)
	}
	var got []reply
	for d := json.NewDecoder(strings.NewReader(out.String())); ; {
		var r reply
		if err := d.Decode(&r); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		got = append(got, r)
	}
	if len(got) != 6 {
		t.Fatalf("%d answers: %s", len(got), &out)
	}
	c := got[1].Counters
	if c.MallocsBefore == 0 || c.MallocsAfter < c.MallocsBefore {
		t.Errorf("allocations: %d, then %d", c.MallocsBefore, c.MallocsAfter)
	}
	c.MallocsBefore, c.MallocsAfter = 0, 0
	if d := cmp.Diff(moved, c); d != "" {
		t.Error(d)
	}
	for i, failed := range []bool{false, false, false, false, true, true} {
		if (got[i].Error != "") != failed {
			t.Errorf("answer %d: %q", i, got[i].Error)
		}
	}
	if info, err := os.Stat(profile); err != nil || info.Size() == 0 {
		t.Errorf("the profile: %v, %v", info, err)
	}

	out.Reset()
	if err := carryOut(&still{err: io.ErrUnexpectedEOF}, strings.NewReader("stats\n"), &out); err != nil ||
		!strings.Contains(out.String(), io.ErrUnexpectedEOF.Error()) {
		t.Errorf("counters that cannot be read: %v, %s", err, &out)
	}
}

func TestCountersSub(t *testing.T) {
	a := counters{Frames: [2]uint64{10, 20}, Bytes: [2]uint64{30, 40}, Refused: 50}
	b := counters{Frames: [2]uint64{1, 2}, Bytes: [2]uint64{3, 4}, Refused: 5}
	got := a.sub(b)
	if d := cmp.Diff(counters{Frames: [2]uint64{9, 18}, Bytes: [2]uint64{27, 36}, Refused: 45}, got); d != "" {
		t.Error(d)
	}
	if got.frames() != 27 {
		t.Errorf("%v frames", got.frames())
	}
}
