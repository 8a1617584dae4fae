package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/conform"
	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/verbs"
)

// claiming is a device that reports other limits than it has.
type claiming struct {
	fabric.Device
	limits fabric.Limits
}

func (c claiming) Limits() fabric.Limits { return c.limits }

// loopback returns an opener of pairs of devices that have the limits has, and report says.
func loopback(t *testing.T, has, says fabric.Limits) opener {
	n := fabrictest.New(fabrictest.WithLimits(has))
	fabrictest.NoLeaks(t, n)
	return func() (conform.Pair, error) {
		return conform.Pair{
			A: claiming{n.Device("mem0"), says}, B: claiming{n.Device("mem0"), says},
			Traits: conform.Traits{NoWindows: !says.Windows}, Patience: conform.ExaminePatience,
		}, nil
	}
}

// TestSelfTest expects a line for each property, in the table and in JSON, and a verdict at the
// end. The exit status tells a device without a property that splitnic needs from others.
func TestSelfTest(t *testing.T) {
	full, loose, more := fabrictest.DefaultLimits(), fabrictest.DefaultLimits(), fabrictest.DefaultLimits()
	loose.WindowBounds = false
	more.CompVectors++
	for _, tc := range []struct {
		name      string
		has, says fabric.Limits
		bounds    string // line of the table
		outcome   conform.Outcome
		status    int
	}{
		{"all", full, full, "mem0    window bounds         yes    ", conform.Holds, 0},
		{"no bounds", loose, loose, "mem0    window bounds         no     ", conform.Lacks, 0},
		{"bounds in words only", loose, full, "mem0    window bounds         no     ", conform.Lacks, 0},
		{"vectors in words only", full, more, "mem0    vectors               FAIL   ", conform.Holds, exit.Failure},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var s selfTests
			if err := s.test(t.Context(), "mem0", "memory", loopback(t, tc.has, tc.says)); err != nil {
				t.Fatal(err)
			}
			var table bytes.Buffer
			if err := s.print(&table); err != nil || !strings.Contains(table.String(), tc.bounds) {
				t.Errorf("%v, no line %q:\n%s", err, tc.bounds, &table)
			}
			var out bytes.Buffer
			var back selfTests
			if err := errors.Join(printJSON(&out, s), json.Unmarshal(out.Bytes(), &back)); err != nil || len(back) != 1 {
				t.Fatalf("%v:\n%s", err, &out)
			}
			outcomes := map[string]conform.Outcome{}
			for _, f := range back[0].Findings {
				outcomes[f.Property] = f.Outcome
				if !strings.Contains(table.String(), f.Property) {
					t.Errorf("%q is not in the table:\n%s", f.Property, &table)
				}
			}
			if len(outcomes) < 21 || outcomes["window bounds"] != tc.outcome || back[0].Device != "mem0" {
				t.Errorf("%+v", back)
			}
			verdict := "splitnic works on mem0 (memory), without: "
			if tc.status != 0 {
				verdict = "splitnic does not work on mem0 (memory): vectors"
			}
			if got := back[0].Verdict; !strings.HasPrefix(got, verdict) || !strings.HasSuffix(table.String(), "\n"+got+"\n") {
				t.Errorf("verdict %q, want %q at the end of:\n%s", got, verdict, &table)
			}
			err := s.err()
			if exit.Status(err) != tc.status {
				t.Errorf("exit status %d, want %d: %v", exit.Status(err), tc.status, err)
			}
			if err != nil {
				testenv.Ended(t, exit.Status(err), err.Error())
			}
		})
	}
}

// TestSelfTestEnds has the device fail during the self-test. It expects the error, and the
// findings until then.
func TestSelfTestEnds(t *testing.T) {
	gone := errors.New("device is gone")
	open := loopback(t, fabrictest.DefaultLimits(), fabrictest.DefaultLimits())
	n := 0
	var s selfTests
	err := s.test(t.Context(), "mem0", "memory", func() (conform.Pair, error) {
		if n++; n > 3 {
			return conform.Pair{}, gone
		}
		return open()
	})
	if !errors.Is(err, gone) || len(s) != 1 || len(s[0].Findings) != 3 {
		t.Errorf("%v, %+v", err, s)
	}
}

// TestSelfTestAll tests devices of which the first cannot be opened. It expects its error, and the
// findings about the other; and nothing but the error if there is no other.
func TestSelfTestAll(t *testing.T) {
	gone := errors.New("without reliable connections")
	open := func(device string) opener {
		if device == "efa0" {
			return func() (conform.Pair, error) { return conform.Pair{}, gone }
		}
		return loopback(t, fabrictest.DefaultLimits(), fabrictest.DefaultLimits())
	}
	efa, mem := verbs.DeviceInfo{Name: "efa0", Driver: "efa"}, verbs.DeviceInfo{Name: "mem0", Driver: "memory"}
	var s selfTests
	if err := s.testAll(t.Context(), []verbs.DeviceInfo{efa, mem}, open); !errors.Is(err, gone) {
		t.Errorf("error %v", err)
	}
	if len(s) != 1 || s[0].Device != "mem0" || !strings.HasPrefix(s[0].Verdict, "splitnic works on mem0") {
		t.Errorf("%+v", s)
	}
	var none selfTests
	var table bytes.Buffer
	err := errors.Join(none.testAll(t.Context(), []verbs.DeviceInfo{efa}, open), none.print(&table))
	if !errors.Is(err, gone) || table.Len() > 0 {
		t.Errorf("%v, with a table:\n%s", err, &table)
	}
}
