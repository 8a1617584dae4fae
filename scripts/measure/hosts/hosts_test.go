package hosts

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/scripts/measure/results"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// meet makes hosts connect at once, and returns what was recorded. It expects all of them to be
// connected and none to be declared silent.
func meet(t *testing.T, c load) map[string]float64 {
	t.Helper()
	c.within = 2 * time.Minute
	var samples bytes.Buffer
	if err := gather(t.Context(), c, results.NewRecorder(&samples).Of("hosts", "x", 0)); err != nil {
		t.Fatal(err)
	}
	f, err := Suite().Read(&samples)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, r := range f.Rows {
		got[r.Metric] = r.Median
	}
	if got[allIn] == 0 || got[silent] != 0 || got["goroutines"] < 10 ||
		got["descriptors"] < 10 || got["resident memory"] <= 0 || got["registered memory"] < 1 {
		t.Errorf("%+v", got)
	}
	return got
}

// TestManyHosts makes hosts connect to ports that cost nothing.
func TestManyHosts(t *testing.T) {
	got := meet(t, load{hosts: 100, ports: noPorts, stay: time.Second})
	if got["wake-ups while idle"] <= 0 || got[idling] <= 0 {
		t.Errorf("%+v", got)
	}
}

// TestNetnsManyHosts makes hosts connect to macvtaps.
func TestNetnsManyHosts(t *testing.T) {
	testenv.NeedTUN(t)
	meet(t, load{hosts: 20, ports: macvtapPorts, stay: time.Millisecond})
}

// TestFlood makes all hosts flood.
func TestFlood(t *testing.T) {
	got := meet(t, load{hosts: 5, ports: noPorts, stay: time.Millisecond, flood: 100 * time.Millisecond})
	if got["frames of 64 bytes"] <= 0 || got["processor for a frame"] <= 0 || got[busiest] < 1 || got["least"] > 1 ||
		got["registered memory after the flood"] <= 0 {
		t.Errorf("%+v", got)
	}
}

// TestNobodyComes has no time for the hosts to connect. Their number is recorded nevertheless.
func TestNobodyComes(t *testing.T) {
	var samples bytes.Buffer
	c := load{hosts: 3, ports: noPorts}
	if err := gather(t.Context(), c, results.NewRecorder(&samples).Of("hosts", "x", 0)); err != nil {
		t.Fatal(err)
	}
	if f, err := Suite().Read(&samples); err != nil || len(f.Rows) != 4 {
		t.Errorf("%+v, %v", f.Rows, err)
	}
}

// TestMistakes expects an error for each set of options that makes no sense.
func TestMistakes(t *testing.T) {
	one := load{hosts: 1, ports: noPorts}
	for _, o := range []options{
		{busy: -1, load: one}, {load: load{ports: "x"}}, {load: load{ports: macvtapPorts, flood: 1}},
		{load: load{ports: noPorts, flood: -1}}, {hosts: []int{1 << 30}, load: one},
	} {
		if err := o.measure(t.Context(), results.NewRecorder(io.Discard), 1, nil); err == nil {
			t.Errorf("%+v", o)
		}
	}
}

// TestSettled expects settled to wait for as long as more memory is touched, but not for ever.
func TestSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		touched := []uint64{100, 300, 400, 404, 500}
		began, n := time.Now(), 0
		err := settled(t.Context(), func() (uint64, error) { n++; return touched[n-1], nil })
		if took := time.Since(began); err != nil || n != 4 || took != 4*settle {
			t.Errorf("%d looks, %v: %v", n, took, err)
		}
		n = 0
		err = settled(t.Context(), func() (uint64, error) { n++; return 1 << n, nil })
		if err != nil || n != maxSettles {
			t.Errorf("%d looks: %v", n, err)
		}
	})
}

// TestSilences logs the end of sessions, of which one ended because the I/O unit was silent.
func TestSilences(t *testing.T) {
	var s silences
	log := slog.New(&s).With("a", "b").WithGroup("c")
	log.Info("ended", "reason", fmt.Errorf("a session: %w", messaging.ErrPeerSilent))
	log.Info("ended", "reason", io.EOF)
	if n := s.n.Load(); n != 1 {
		t.Errorf("%d", n)
	}
}

func TestFits(t *testing.T) {
	if fits(10, 10*perHost+100) != nil || fits(10, 10*perHost+99) == nil {
		t.Error("the limit of descriptors")
	}
}

func TestNumbers(t *testing.T) {
	if list, err := numbers("8,64"); err != nil || !slices.Equal(list, []int{8, 64}) {
		t.Errorf("%v, %v", list, err)
	}
	for _, bad := range []string{"", "8,", "0", "-1", "x"} {
		if _, err := numbers(bad); err == nil {
			t.Errorf("%q hosts", bad)
		}
	}
}

// TestGoals checks the goals of 256 hosts of which one needed two attempts, and of others.
func TestGoals(t *testing.T) {
	for subject, want := range map[string]map[string]bool{
		quick: {"all hosts connected": true, "256 hosts connected": false, "hosts with more than one attempt": false,
			"sessions declared silent": true},
		"7 hosts, ports none, busy 0": {"all hosts connected": true, "sessions declared silent": true},
	} {
		var samples bytes.Buffer
		sink := results.NewRecorder(&samples).Of("hosts", subject, 0)
		sink.Add(allIn, "s", 3)
		sink.Add(silent, "sessions", 0)
		sink.Add(refused, "hosts", 1)
		f, err := Suite().Read(&samples)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]bool{}
		for _, g := range f.Goals {
			got[g.What] = g.Met
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: %s", subject, d)
		}
	}
}
