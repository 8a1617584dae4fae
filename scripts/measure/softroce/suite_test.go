package softroce

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/splitnic/splitnic/scripts/measure/results"
)

// fixture returns the results of a run of two rounds, from testdata.
func fixture(t *testing.T) results.File {
	t.Helper()
	in, err := os.Open("testdata/samples.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	f, err := Suite().Read(in)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestMarkdown compares the tables with those in testdata, which
// SPLITNIC_UPDATE=1 writes.
func TestMarkdown(t *testing.T) {
	f := fixture(t)
	var got bytes.Buffer
	if err := Suite().Write(&got, &f, true); err != nil {
		t.Fatal(err)
	}
	const golden = "testdata/results.md"
	if os.Getenv("SPLITNIC_UPDATE") != "" {
		if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got.String()); d != "" {
		t.Error(d)
	}
}

// TestSomeOfIt expects no table and no plot of what was not measured.
func TestSomeOfIt(t *testing.T) {
	rs := results.Rows{row("net", "veth", 1500, "tcp", "Mbit/s", 10), row("net", "veth", 1500, "ping", "us", 20)}
	var titles []string
	for _, table := range tables(rs) {
		if len(table.Lines) > 1 {
			titles = append(titles, table.Title)
		}
	}
	for _, p := range plots(rs) {
		titles = append(titles, p.Name)
	}
	if d := cmp.Diff([]string{"Networks with an MTU of 1500, Mbit/s", "networks-1500"}, titles); d != "" {
		t.Error(d)
	}
}

// TestPlots expects every median, with its spread, in the data of its plot, and no curve of one
// size.
func TestPlots(t *testing.T) {
	rs := fixture(t).Rows
	drawn := map[string][]results.Point{}
	for _, p := range plots(rs) {
		for _, s := range p.Series {
			drawn[p.Name+" "+s.Name] = s.Points
		}
	}
	for _, r := range rs {
		name := ""
		switch {
		case r.Group == "bw" && r.Metric == "bandwidth":
			name = "bandwidth-1"
		case r.Group == "net" && strings.HasPrefix(r.Metric, "tcp"):
			name = "networks-1500"
		case r.Group == "lat":
			name = "percentiles"
		default:
			continue
		}
		points := drawn[name+" "+r.Subject]
		if !slices.ContainsFunc(points, func(p results.Point) bool {
			return p.Y == r.Median && p.Min == r.Min && p.Max == r.Max && (name != "bandwidth-1" || p.X == float64(r.Size))
		}) {
			t.Errorf("%s of %s, %g, is not in %s: %v", r.Metric, r.Subject, r.Median, name, points)
		}
	}
	if _, ok := drawn["latency "+splitnic]; ok {
		t.Error("a curve of one size was drawn")
	}
}

func row(group, subject string, size int, metric, unit string, v float64) results.Row {
	return results.Row{
		Key:  results.Key{Group: group, Subject: subject, Size: size, Queues: 1, Metric: metric},
		Unit: unit, Samples: []float64{v}, Median: v, Min: v, Max: v,
	}
}

// TestReferences expects the rows to which a row is compared, among others.
func TestReferences(t *testing.T) {
	const size = 65535
	for _, c := range []struct {
		name  string
		row   results.Row
		among results.Rows
		to    []string
	}{
		{"another size", row("bw", splitnic, size, "bandwidth", "MiB/s", 50),
			results.Rows{row("bw", writeBW, 65536, "bandwidth", "MiB/s", 0), row("bw", yardstick, size, "bandwidth", "MiB/s", 0),
				row("bw", yardstick+events, size, "bandwidth", "MiB/s", 0)}, []string{yardstick, yardstick + events, writeBW}},
		{"another mode", row("bw", splitnic+"-send", size, "bandwidth", "MiB/s", 60),
			results.Rows{row("bw", writeBW, 65536, "bandwidth", "MiB/s", 0)}, []string{writeBW}},
		{"the yardstick itself", row("bw", yardstick, 64, "rate", "Mpps", 3),
			results.Rows{row("bw", writeBW, 64, "rate", "Mpps", 2)}, []string{writeBW}},
		{"a wrong size", row("bw", splitnic, 64, "rate", "Mpps", 3),
			results.Rows{row("bw", writeBW, 1500, "rate", "Mpps", 2)}, nil},
		{"another metric", row("bw", splitnic, 64, "rate", "Mpps", 3),
			results.Rows{row("bw", writeBW, 64, "bandwidth", "MiB/s", 2)}, nil},
		{"frames", row("pps", splitnic, 64, "rate", "frames/s", 3),
			results.Rows{row("bw", writeBW, 64, "rate", "messages/s", 2)}, []string{writeBW}},
		{"both poll", row("lat", splitnic, 64, "typical", "us", 30),
			results.Rows{row("lat", writeLat, 64, "typical", "us", 0), row("lat", yardstick, 64, "typical", "us", 0),
				row("lat", yardstick+events, 64, "typical", "us", 0)}, []string{yardstick}},
		{"both sleep", row("lat", splitnic+events, 64, "typical", "us", 30),
			results.Rows{row("lat", yardstick, 64, "typical", "us", 0), row("lat", yardstick+events, 64, "typical", "us", 0)},
			[]string{yardstick + events}},
		{"a network", row("net", "vxlan", 1500, "tcp", "Mbit/s", 30),
			results.Rows{row("net", writeBW, 65536, "bandwidth", "Mbit/s", 60)}, []string{writeBW}},
		{"a round trip is no throughput", row("net", "vxlan", 1500, "ping", "us", 30),
			results.Rows{row("net", writeBW, 65536, "bandwidth", "Mbit/s", 60)}, nil},
		{"a busy card", row("rtt", splitnic+"-loaded", 1500, "p99", "us", 90),
			results.Rows{row("rtt", idle, 1500, "p50", "us", 10), row("rtt", idle, 1500, "p99", "us", 30)}, []string{idle}},
		{"the idle one", row("rtt", idle, 1500, "p99", "us", 30),
			results.Rows{row("rtt", splitnic+"-loaded", 1500, "p99", "us", 90)}, nil},
		{"a tunnel", row("tunnel-gre", splitnic, 9000, "tcp", "Mbit/s", 30),
			results.Rows{row("tunnel-gre", copyLoop, 1500, "tcp", "Mbit/s", 10),
				row("tunnel-gre", copyLoop, 9000, "tcp", "Mbit/s", 10)}, []string{copyLoop}},
		{"directly", row("direct", direct, 1500, "p99", "us", 30),
			results.Rows{row("direct", indirect, 1500, "p50", "us", 10), row("direct", indirect, 1500, "p99", "us", 60)},
			[]string{indirect}},
		{"not directly", row("direct", indirect, 1500, "p99", "us", 60),
			results.Rows{row("direct", direct, 1500, "p99", "us", 30)}, nil},
		{"what others are compared to", row("net", writeBW, 65536, "bandwidth", "Mbit/s", 60), nil, nil},
	} {
		var to []string
		for _, k := range references(&c.row) {
			if r := append(c.among, c.row).Find(k); r != nil {
				to = append(to, r.Subject)
			}
		}
		if d := cmp.Diff(c.to, to); d != "" {
			t.Errorf("%s: %s", c.name, d)
		}
	}
}

func TestGoals(t *testing.T) {
	f := fixture(t)
	got := map[string]bool{}
	for _, g := range f.Goals {
		got[g.Subject+": "+g.What+" "+g.Bound] = g.Met
	}
	want := map[string]bool{
		"splitnic: messages of 64 KiB, one queue pair, MiB/s >= 0.97":                                                true,
		"splitnic: the same, packed >= 0.9":                                                                          true,
		"splitnic-no-pack: messages of 64 bytes in batches of 16, one queue pair, a transfer for each, MiB/s >= 0.9": false,
		"splitnic: half a round trip of 64 bytes, polling, least <= 1.1":                                             true,
		"splitnic: the same, typical <= 1.2":                                                                         false,
		"splitnic: TCP through the card, host to LAN, one stream, MTU 1500 >= 0.85":                                  false,
		"splitnic: TCP through the card, LAN to host, one stream, MTU 1500 >= 0.85":                                  true,
		"splitnic: UDP fragments at 2 times the best: arrives >= 0.8":                                                true,
		"splitnic: UDP fragments at 5 times the best: arrives >= 0.8":                                                true,
		"splitnic: UDP fragments at 10 times the best: arrives >= 0.8":                                               false,
		"splitnic-direct: TCP from host to host, directly >= 1.7":                                                    true,
		"splitnic-direct: the same, back >= 1.7":                                                                     false,
		"splitnic-direct: round trip from host to host, directly, median <= 0.6":                                     true,
		"splitnic-direct: processor time of the I/O unit for TCP from host to host <= 0.05":                          true,
		"splitnic-direct: the same, back <= 0.05":                                                                    false,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
