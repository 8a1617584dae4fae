package hosts

import (
	"bytes"
	"io"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/scripts/measure/results"
)

// meet makes hosts connect at once. It expects all of them to be connected, none to be declared
// silent, and none to be refused because there were too many, unless hosts have lost patience: on a
// slow machine they begin again while their first attempts still count.
func meet(t *testing.T, ports string) {
	r, err := gather(t.Context(), load{hosts: 100, ports: ports, stay: time.Second, within: 2 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if i := r.idle; i.wakeups <= 0 || i.goroutines < 10 || i.descriptors < 10 || i.memory <= 0 || i.registered < 1e6 {
		t.Errorf("idle: %+v", i)
	}
	if r.allIn == 0 || r.silent != 0 || r.crowded != 0 && r.refusals["gone"] == 0 {
		t.Errorf("%+v", r)
	}
}

// TestManyHosts makes hosts connect to ports that cost nothing.
func TestManyHosts(t *testing.T) { meet(t, noPorts) }

// TestFlood makes all hosts flood, and checks the results. It also expects errors for a flood
// with macvtap ports, and for a negative duration.
func TestFlood(t *testing.T) {
	c := load{hosts: 5, ports: noPorts, stay: time.Millisecond, flood: 100 * time.Millisecond, within: 2 * time.Minute}
	r, err := gather(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	f := r.flood
	if f == nil || f.rate <= 0 || f.processor <= 0 || f.busiest < 1 || f.least > 1 || f.registered <= 0 {
		t.Fatalf("%+v", f)
	}
	for _, trip := range []*trips{f.alone, f.beside} {
		if trip == nil || trip.median <= 0 || trip.p99 < trip.median {
			t.Errorf("%+v", trip)
		}
	}
	for _, c := range []load{{hosts: 1, ports: macvtapPorts, flood: 1}, {hosts: 1, ports: noPorts, flood: -1}} {
		if err := (&Options{load: c}).Measure(t.Context(), results.NewRecorder(io.Discard), 1, nil); err == nil {
			t.Errorf("a flood of %v at ports %s", c.flood, c.ports)
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
			t.Errorf("%d looks at what always grows: %v", n, err)
		}
	})
}

// TestNetnsManyHosts makes hosts connect to an I/O unit with a macvtap for each host.
func TestNetnsManyHosts(t *testing.T) {
	testenv.NeedRoot(t)
	testenv.NeedTUN(t)
	meet(t, macvtapPorts)
}

// TestFits expects an error for more hosts than this process may have descriptors for.
func TestFits(t *testing.T) {
	for hosts, fit := range map[int]bool{1: true, 552: true, 553: false, 1000: false} {
		if err := (load{hosts: hosts}).fits(20_000); (err == nil) != fit {
			t.Errorf("%d hosts: %v", hosts, err)
		}
	}
	if err := (load{hosts: 1}).fits(10); err == nil {
		t.Error("ten descriptors are enough")
	}
	o := Options{hosts: counts{math.MaxInt32}, load: load{ports: noPorts}}
	if err := o.Measure(t.Context(), results.NewRecorder(io.Discard), 1, nil); err == nil {
		t.Error("all the hosts that there could be were tried")
	}
}

// TestPlots plots what hosts cost over their number, for two kinds of ports.
func TestPlots(t *testing.T) {
	var o Options
	if err := o.hosts.Set("8,64"); err != nil || o.hosts.String() != "8,64" {
		t.Fatal(o.hosts.String(), err)
	}
	for _, bad := range []string{"", "8,", "0", "-1", "x"} {
		if err := new(counts).Set(bad); err == nil {
			t.Errorf("%q hosts", bad)
		}
	}
	var samples bytes.Buffer
	rec := results.NewRecorder(&samples)
	for _, ports := range []string{noPorts, macvtapPorts} {
		for i, n := range o.hosts {
			o.load = load{hosts: n, ports: ports}
			o.record(result{allIn: 1, idle: idle{processor: float64(1+i) / 100}}, rec, 0)
		}
	}
	f, err := Suite().Read(&samples)
	if err != nil {
		t.Fatal(err)
	}
	list := plots(f.Rows)
	if len(list) != 1 { // there is no flood to plot
		t.Fatalf("%+v", list)
	}
	points := []results.Point{{X: 8, Y: 1, Min: 1, Max: 1}, {X: 64, Y: 2, Min: 2, Max: 2}}
	if d := cmp.Diff([]results.Series{{Name: "ports none, busy 0", Points: points},
		{Name: "ports macvtap, busy 0", Points: points}}, list[0].Series); d != "" {
		t.Error(d)
	}
}

// TestRecord records a result with a silent session. It checks the goals and the notes if all
// hosts have connected, and if not.
func TestRecord(t *testing.T) {
	for _, c := range []struct {
		in   time.Duration
		met  []bool
		note bool
	}{{3 * time.Second, []bool{true, false, true, true}, false}, {0, []bool{false, true}, true}} {
		var samples bytes.Buffer
		o := Options{load: load{hosts: 7, ports: noPorts, within: time.Minute}}
		o.record(result{allIn: c.in, silent: 1, ended: map[string]uint64{"silent": 1, "bye": 0}},
			results.NewRecorder(&samples), 0)
		f, err := Suite().Read(&samples)
		if err != nil {
			t.Fatal(err)
		}
		var met []bool
		for _, g := range f.Goals {
			met = append(met, g.Met)
		}
		if d := cmp.Diff(c.met, met); d != "" {
			t.Errorf("all in after %v: %+v", c.in, f.Goals)
		}
		ended := f.Rows.With(f.Rows[0].Key, "ended: silent")
		if ended == nil || ended.Median != 1 || f.Rows.With(f.Rows[0].Key, "ended: bye") != nil {
			t.Errorf("%+v", f.Rows)
		}
		if c.note != strings.Contains(strings.Join(f.Notes, ""), "not all hosts") {
			t.Errorf("%q", f.Notes)
		}
	}
}
