package main

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"encoding/json"

	"github.com/google/go-cmp/cmp"
)

var (
	ours       = subject{what: splitnic, port: "macvtap"}
	theirs     = subject{what: relay, port: "macvtap"}
	noOffloads = subject{what: splitnic, port: "macvtap", plain: true}
)

func TestRows(t *testing.T) {
	r := newResults()
	for _, v := range []float64{3, 1, 2} {
		r.sink("tcp.rx", ours, 1500).add(throughput, "Gbit/s", v)
		r.sink("tcp.tx", theirs, 1500).add(throughput, "Gbit/s", 4*v)
		r.sink("tcp.tx", ours, 1500).add(throughput, "Gbit/s", 3*v)
	}
	r.sink("tcp.tx", ours, 1500).add(throughput, "Gbit/s", 100)
	want := []row{
		{Name: "tcp.tx", Subject: "splitnic/macvtap", Size: 1500, Queues: 1, Metric: throughput, Unit: "Gbit/s", Median: 7.5,
			Min: 3, Max: 100, Runs: 4, Ratio: 7.5 / 8, RatioTo: "relay/macvtap"},
		{Name: "tcp.tx", Subject: "relay/macvtap", Size: 1500, Queues: 1, Metric: throughput, Unit: "Gbit/s", Median: 8,
			Min: 4, Max: 12, Runs: 3},
		{Name: "tcp.rx", Subject: "splitnic/macvtap", Size: 1500, Queues: 1, Metric: throughput, Unit: "Gbit/s", Median: 2,
			Min: 1, Max: 3, Runs: 3},
	}
	var got []row
	for _, row := range r.rows() {
		if row.Name != goalName {
			got = append(got, row)
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// verdicts returns what is said about each goal.
func verdicts(r *results) map[string]bool {
	got := map[string]bool{}
	for _, row := range r.rows() {
		if row.Name == goalName {
			got[row.Subject+" "+row.Metric] = *row.Met
		}
	}
	return got
}

func TestGoals(t *testing.T) {
	fill := func(share float64) *results {
		r := newResults()
		add := func(name string, s subject, metric string, v float64) { r.sink(name, s, 0).add(metric, "", v) }
		add("tcp.tx", theirs, throughput, 100)
		add("tcp.tx", ours, throughput, 80*share)
		add("tcp.tx", noOffloads, throughput, 16)
		add("tcp.tx", ours, frameRate, 1000)
		add("tcp.tx", ours, allocations, 0.209/share)
		add("tcp.tx", ours, halfCalls, 1/share)
		add("udp.rx", theirs, rate, 100)
		add("udp.rx", ours, rate, 60*share)
		add("udp.rx.64flows", ours, rate, 54*share*share)
		add("udp.rx", ours, halfCalls, 0.5/share)
		add("overload.tx.full", ours, arrivedAt(5), 0.8*share)
		add(idle, ours, allocations, 200)
		add(idle, ours, idleHalf, 0.499/share)
		return r
	}
	names := []string{
		"tcp.tx beside the relay", "tcp.tx beside none of the offloads", "tcp.tx allocations",
		"tcp.tx system calls of a half",
		"overload.tx.full at 5 times the best",
		"udp.rx beside the relay", "udp.rx of 64 flows beside one", "udp.rx system calls of a half",
		"idle use of a processor, each half",
	}
	for share, met := range map[float64]bool{1: true, 0.99: false} {
		want := map[string]bool{}
		for _, n := range names {
			want[ours.String()+" "+n] = met
		}
		if d := cmp.Diff(want, verdicts(fill(share))); d != "" {
			t.Errorf("%v of it: %s", share, d)
		}
	}
	if got := verdicts(newResults()); len(got) != 0 {
		t.Errorf("goals of nothing: %v", got)
	}
}

// TestReport writes figures to a file and to tables, and reads the file again.
func TestReport(t *testing.T) {
	r := newResults()
	r.sink("tcp.tx", ours, 1500).add(throughput, "Gbit/s", 12.34)
	r.sink("tcp.tx", theirs, 1500).add(throughput, "Gbit/s", 24.68)
	r.sink("tcp.tx", ours, 1500).add(cpuMachine, "s/GB", 1.5)
	r.sink("tcp.tx", ours, 1500).add(callMetric+"read", "/frame", 0.25)
	r.sink("overload.rx.full", theirs, 1472).add(throughput, "Gbit/s", 2)
	for _, f := range factors {
		r.sink("overload.rx.full", theirs, 1472).add(offeredAt(f), "of the best", f-1)
		r.sink("overload.rx.full", theirs, 1472).add(arrivedAt(f), "of the best", 1/f)
	}
	file := filepath.Join(t.TempDir(), "new", "native.json")
	rows := r.rows()
	if err := writeJSON(file, rows); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got []row
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(rows, got); d != "" {
		t.Error(d)
	}
	var out strings.Builder
	if err := tables(&out, rows, []string{"a remark"}, true); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"| tcp.tx | splitnic/macvtap | 12.3 | 12.3 | 12.3 | Gbit/s | 0.50 |",
		"| tcp.tx | splitnic/macvtap | read 0.250 |",
		"| overload.rx.full | relay/macvtap | 2.00 (2.00–2.00) | Gbit/s | 1.00 | 0.500 (0.500–0.500) |" +
			" 4.00 | 0.200 (0.200–0.200) | 9.00 | 0.100 (0.100–0.100) |",
		"| tcp.tx beside the relay | splitnic/macvtap | 0.500 ratio | >= 0.8 | missed |",
		"Note: a remark.",
	} {
		if !strings.Contains(out.String(), line+"\n") {
			t.Errorf("%q is not in\n%s", line, &out)
		}
	}
}

func TestMedian(t *testing.T) {
	for want, v := range map[float64][]float64{1: {1}, 1.5: {1, 2}, 2: {1, 2, 9}} {
		if got := median(v); got != want {
			t.Errorf("median of %v: %v", v, got)
		}
	}
}

func TestNumber(t *testing.T) {
	for want, v := range map[string]float64{"123457": 123456.7, "12.3": 12.34, "1.23": 1.234, "0.123": 0.1234, "0.00": 0,
		"0.001": 0.0009} {
		if got := number(v); got != want {
			t.Errorf("%v is written %s, not %s", v, got, want)
		}
	}
	if got := number(math.Pi * 1e6); got != "3141593" {
		t.Error(got)
	}
}

func TestSelection(t *testing.T) {
	for _, tc := range []struct {
		list, subject, measurement string
		want                       bool
	}{
		{"", "veth", "tcp.tx", true},
		{"tcp", "veth", "tcp.tx", true},
		{"tcp", "veth", "udp.tx", false},
		{"udp, tcp.rx", "veth", "tcp.rx", true},
		{"relay", "relay/tap", "udp.tx", true},
		{"relay:tcp", "relay/tap", "udp.tx", false},
		{"relay:tcp", "relay/tap", "tcp4.tx", true},
		{"relay:tcp", "veth", "tcp.tx", false},
		{" ,", "veth", "tcp.tx", true},
	} {
		if got := parseSelection(tc.list).has(tc.subject, tc.measurement); got != tc.want {
			t.Errorf("%q of %s, %s: %t", tc.list, tc.subject, tc.measurement, got)
		}
	}
}

// TestAskedFor shows that some are only made if they are selected.
func TestAskedFor(t *testing.T) {
	for _, tc := range []struct {
		list         string
		asked, other bool
	}{
		{"", false, true}, {"overload", true, false}, {"veth", true, true}, {"veth:overload", true, false},
		{"relay", false, false},
	} {
		sel := parseSelection(tc.list)
		if got := sel.wants("veth", &measurement{name: "overload.tx.full", asked: true}); got != tc.asked {
			t.Errorf("%q: what has to be asked for: %t", tc.list, got)
		}
		if got := sel.wants("veth", &measurement{name: "tcp.tx"}); got != tc.other {
			t.Errorf("%q: the other: %t", tc.list, got)
		}
	}
}

// TestSubjects keeps names and what is measured of each in step.
func TestSubjects(t *testing.T) {
	all := measurements()
	for _, s := range subjects() {
		if got, ok := parseSubject(s.String()); !ok || got != s {
			t.Errorf("%s is read as %v, %t", s, got, ok)
		}
		n := 0
		for i := range all {
			if all[i].of(s) {
				n++
			}
		}
		if want := map[bool]int{true: len(all)}[s.full()]; n < 2 || want != 0 && n != want {
			t.Errorf("%d measurements of %s", n, s)
		}
	}
	if _, ok := parseSubject("relay"); ok {
		t.Error("a relay to nowhere")
	}
}
