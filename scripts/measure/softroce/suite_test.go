package softroce

import (
	"fmt"
	"os"
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
		got[g.Subject+": "+g.What+fmt.Sprintf(" %.2f", g.Value)] = g.Met
	}
	want := map[string]bool{
		"splitnic: messages of 64 KiB 1.00":                                                 true,
		"splitnic: messages of 64 bytes, packed 0.91":                                       true,
		"splitnic-no-pack: messages of 64 bytes in batches of 16, a transfer for each 0.64": false,
		"splitnic: half a round trip of 64 bytes, polling, least 1.10":                      true,
		"splitnic: half a round trip of 64 bytes, polling, typical 1.20":                    false,
		"splitnic: TCP through the card, one stream 0.80":                                   false,
		"splitnic: TCP through the card, one stream 0.89":                                   true,
		"splitnic: receiver not ready 0.00":                                                 true,
		"splitnic-direct: TCP from host to host, directly 1.97":                             true,
		"splitnic-direct: TCP from host to host, directly, back 1.41":                       false,
		"splitnic-direct: round trip from host to host, directly 0.49":                      true,
		"splitnic-direct: processor time of the I/O unit for TCP from host to host 0.03":    true,
		"splitnic-direct: processor time of the I/O unit for TCP from host to host 0.13":    false,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
