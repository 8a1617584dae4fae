package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/internal/bench"
	"github.com/splitnic/splitnic/internal/bench/sweep"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// TestSweepFlags parses the flags of a sweep. It expects the number of settings to measure, or a
// usage error.
func TestSweepFlags(t *testing.T) {
	for line, want := range map[string]int{
		"--sweep": len(sweepSettings), "--sweep=spin": 3, "--sweep=cq-moderation,spin": 5, "--sweep=pack-copy": 3,
		"--sweep --rounds 3 -D 1s": len(sweepSettings), "--sweep=mtu": 0, "--sweep --rounds 2": 0, "--sweep -D 0s": 0,
	} {
		var f sweepFlags
		flags := pflag.NewFlagSet("bench", pflag.ContinueOnError)
		f.add(flags)
		if err := flags.Parse(strings.Fields(line)); err != nil {
			t.Fatal(err)
		}
		got, err := f.settings()
		if len(got) != want || (err == nil) != (want > 0) || err != nil && exit.Status(err) != exit.Usage {
			t.Errorf("%s: %v, %v", line, got, err)
		}
	}
}

// TestSweepSettings applies each setting to a messaging.Config and expects the change that the
// flag of an endpoint would make.
func TestSweepSettings(t *testing.T) {
	for _, s := range sweepSettings {
		var c messaging.Config
		if err := applySweep(s, &c); err != nil {
			t.Errorf("%v: %v", s, err)
		}
		if s.Key == "spin" != (c.Spin > 0 || c.SpinAdaptive) ||
			s.Key == "cq-moderation" != (c.Moderation != messaging.Moderation{}) ||
			s.Key == "pack-copy" != (c.PackCopy != 0) || s.Key == "inline" != (c.MaxInline != 0) {
			t.Errorf("%v: %+v", s, c)
		}
	}
}

// TestSweepPackCopy expects that a frame size is measured for which each value of pack-copy
// differs from the default. Without one, the sweep could not compare them.
func TestSweepPackCopy(t *testing.T) {
	for _, s := range sweepSettings {
		if s.Key != "pack-copy" {
			continue
		}
		var c messaging.Config
		if err := applySweep(s, &c); err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(sweepAims, func(a sweepAim) bool {
			return a.spec.Kind == bench.PPS && (a.spec.Size <= c.PackCopy) != (a.spec.Size <= messaging.DefaultPackCopy)
		}) {
			t.Errorf("%v: copies and gathers the same frames as the default", s)
		}
	}
}

// TestSweepBetween measures two of the settings between two devices.
func TestSweepBetween(t *testing.T) {
	n := fabrictest.New()
	f := sweepFlags{rounds: sweep.MinRounds, duration: time.Millisecond}
	var out strings.Builder
	if err := f.between(t.Context(), &out, n.Device("a"), n.Device("b"), messaging.Config{PeerTimeout: time.Minute},
		[]sweep.Setting{sweepSettings[0], sweepSettings[3]}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"a to b", "defaults", sweepSettings[0].String(), sweepSettings[3].String(), "\nUse "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
}

// TestPrintSweep prints the figures, the verdicts and the settings to use.
func TestPrintSweep(t *testing.T) {
	rows := []sweep.Row{
		{Figures: []sweep.Figure{{Median: 12.3456, Min: 11, Max: 14}}},
		{Setting: sweepSettings[0], Figures: []sweep.Figure{{Median: 9, Min: 8, Max: 10, Verdict: sweep.Better}}},
		{Setting: sweepSettings[3], Figures: []sweep.Figure{{Median: 1234, Min: 0.08, Max: 13, Verdict: sweep.Same}}},
	}
	aims := []sweep.Aim{{Name: "half a round trip", Unit: "µs", Less: true}}
	for _, c := range []struct {
		rows []sweep.Row
		want string
	}{
		{rows, `                       half a round trip, µs
defaults               12.3 (11.0–14.0)
spin: 20us             9.00 (8.00–10.0) better
cq-moderation: 8,20us  1234 (0.0800–13.0) no difference

Use in the configuration files of hosts and I/O units:

advanced:
  spin: 20us
`},
		{rows[:1], `          half a round trip, µs
defaults  12.3 (11.0–14.0)

Use the defaults: nothing is better for something and worse for nothing.
`},
	} {
		var out strings.Builder
		if err := printSweep(&out, c.rows, aims); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(c.want, out.String()); d != "" {
			t.Error(d)
		}
	}
}
