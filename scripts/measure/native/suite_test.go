package native

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/splitnic/splitnic/scripts/measure/results"
)

var (
	ours       = subject{what: splitnic, port: "macvtap"}
	theirs     = subject{what: relay, port: "macvtap"}
	noOffloads = subject{what: splitnic, port: "macvtap", plain: true}
)

func row(group string, s subject, metric, unit string, v float64) results.Row {
	return results.Row{
		Key:  results.Key{Group: group, Subject: s.String(), Size: 1500, Queues: 1, Metric: metric},
		Unit: unit, Samples: []float64{v}, Median: v, Min: v, Max: v,
	}
}

func TestReferences(t *testing.T) {
	for _, c := range []struct {
		s      subject
		metric string
		want   string
	}{
		{ours, throughput, "relay/macvtap"}, {noOffloads, cpuMachine, "relay/macvtap"},
		{subject{what: splitnic, port: "tap"}, median99, "relay/tap"},
		{ours, allocations, ""}, {theirs, throughput, ""}, {subject{what: veth}, throughput, ""},
	} {
		r := row("tcp.tx", c.s, c.metric, "", 1)
		var got string
		for _, k := range references(&r) {
			got += k.Subject
			if k.Subject = r.Subject; k != r.Key {
				t.Errorf("%s of %s is compared to %+v", c.metric, c.s, k)
			}
		}
		if got != c.want {
			t.Errorf("%s of %s is compared to %q, want %q", c.metric, c.s, got, c.want)
		}
	}
}

func TestGoals(t *testing.T) {
	fill := func(share float64) (rs results.Rows) {
		add := func(name string, s subject, metric string, v float64) { rs = append(rs, row(name, s, metric, "", v)) }
		add("tcp.tx", theirs, throughput, 100)
		add("tcp.tx", ours, throughput, 80*share)
		add("tcp.tx", noOffloads, throughput, 16)
		add("tcp.tx", ours, frameRate, 1000)
		add("tcp.tx", ours, allocations, 0.209/share)
		add("tcp.tx", ours, endpointCalls, 1/share)
		add("udp.rx", theirs, rate, 100)
		add("udp.rx", ours, rate, 60*share)
		add("udp.rx.64flows", ours, rate, 54*share*share)
		add("udp.rx", ours, endpointCalls, 0.5/share)
		add("ping", theirs, average, 100)
		add("ping", ours, average, 90/share)
		add("overload.tx.full", ours, arrivedAt(5), 0.8*share)
		add(idle, ours, allocations, 200)
		add(idle, ours, idleEndpoint, 0.499/share)
		return rs
	}
	names := []string{
		"tcp.tx beside the relay", "tcp.tx beside none of the offloads", "tcp.tx allocations",
		"tcp.tx system calls of an endpoint",
		"ping beside the relay", "overload.tx.full at 5 times the best",
		"udp.rx beside the relay", "udp.rx of 64 flows beside one", "udp.rx system calls of an endpoint",
		"idle use of a processor, each endpoint",
	}
	for share, met := range map[float64]bool{1: true, 0.99: false} {
		want := map[string]bool{}
		for _, n := range names {
			want[ours.String()+" "+n] = met
		}
		got := map[string]bool{}
		for _, g := range goals(fill(share)) {
			got[g.Subject+" "+g.What] = g.Met
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%v of it: %s", share, d)
		}
	}
	if got := goals(nil); len(got) != 0 {
		t.Errorf("goals of nothing: %v", got)
	}
}

func TestTables(t *testing.T) {
	rs := results.Rows{
		row("tcp.tx", ours, throughput, "Gbit/s", 12.34), row("tcp.tx", theirs, throughput, "Gbit/s", 24.68),
		row("tcp.tx", ours, cpuMachine, "s/GB", 1.5), row("tcp.tx", ours, callMetric+"read", "/frame", 0.25),
		row("rtt", ours, median99, "µs", 50), row("overload.rx.full", theirs, throughput, "Gbit/s", 2),
	}
	rs[0].Ratio, rs[0].RatioTo = 0.5, theirs.String()
	for _, f := range factors {
		rs = append(rs, row("overload.rx.full", theirs, offeredAt(f), "of the best", f-1),
			row("overload.rx.full", theirs, arrivedAt(f), "of the best", 1/f))
	}
	var lines [][]string
	for _, table := range tables(rs) {
		lines = append(lines, table.Lines...)
	}
	for _, want := range [][]string{
		{"tcp.tx", "splitnic/macvtap", "Gbit/s", "12.3", "0.50"},
		{"rtt p99", "splitnic/macvtap", "µs", "50.0", ""},
		{"overload.rx.full", "relay/macvtap", "2.00", "1.00", "0.500", "4.00", "0.200", "9.00", "0.100"},
		{"tcp.tx", "splitnic/macvtap", "1.50"},
		{"tcp.tx", "splitnic/macvtap", "0.250"},
	} {
		if !slices.ContainsFunc(lines, func(l []string) bool { return slices.Equal(l, want) }) {
			t.Errorf("%q is not in\n%q", want, lines)
		}
	}
}

// TestSubjects parses the name of each subject. It expects all measurements of a subject that
// is measured in full, and at least two of any other.
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
