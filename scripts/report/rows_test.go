package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSummarize(t *testing.T) {
	got, err := summarize(strings.NewReader(`bw ib_write_bw 64 1 bandwidth MiB/s 3
bw splitnic 64 1 bandwidth MiB/s 1
bw ib_write_bw 64 1 bandwidth MiB/s 6
bw splitnic 64 1 bandwidth MiB/s 4
bw ib_write_bw 64 1 bandwidth MiB/s 4
bw splitnic 64 1 bandwidth MiB/s 3
net veth 1500 4 tcp Mbit/s 7
net veth 1500 4 tcp Mbit/s 8
`))
	want := rows{
		{Name: "bw", Subject: "ib_write_bw", Size: 64, Queues: 1, Metric: "bandwidth", Unit: "MiB/s", Median: 4, Min: 3,
			Max: 6, Runs: 3},
		{Name: "bw", Subject: "splitnic", Size: 64, Queues: 1, Metric: "bandwidth", Unit: "MiB/s", Median: 3, Min: 1, Max: 4,
			Runs: 3, Ratio: 0.75, RatioTo: "ib_write_bw"},
		{Name: "net", Subject: "veth", Size: 1500, Queues: 4, Metric: "tcp", Unit: "Mbit/s", Median: 7.5, Min: 7, Max: 8,
			Runs: 2},
	}
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestSummarizeRefuses(t *testing.T) {
	for _, c := range []struct{ name, text, says string }{
		{"nothing", "", "nothing"},
		{"a line cut short", "bw x 64 1 m u\n", "6 fields"},
		{"a figure that is none", "bw x 64 1 m u fast\n", "fast"},
		{"a hole", "bw x 64 1 m u 1\nbw y 64 1 m u 1\nbw x 64 1 m u 1\n", "bw y"},
	} {
		if _, err := summarize(strings.NewReader(c.text)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestCompare(t *testing.T) {
	const size = 65535
	r := func(name, subject string, size int, metric, unit string, median float64) row {
		return row{Name: name, Subject: subject, Size: size, Queues: 1, Metric: metric, Unit: unit, Median: median}
	}
	for _, c := range []struct {
		name  string
		row   row
		among rows
		ratio float64
		to    string
	}{
		{"the better one, of another size", r("bw", "splitnic", size, "bandwidth", "MiB/s", 50),
			rows{r("bw", "ib_write_bw", 65536, "bandwidth", "MiB/s", 100), r("bw", "yardstick", size, "bandwidth", "MiB/s", 80)},
			0.5, "ib_write_bw"},
		{"the better one that sleeps", r("bw", "splitnic-send", size, "bandwidth", "MiB/s", 60),
			rows{r("bw", "ib_write_bw", 65536, "bandwidth", "MiB/s", 100), r("bw", "yardstick", size, "bandwidth", "MiB/s", 80),
				r("bw", "yardstick-events", size, "bandwidth", "MiB/s", 120)}, 0.5, "yardstick-events"},
		{"the yardstick itself", r("bw", "yardstick", 64, "rate", "Mpps", 3),
			rows{r("bw", "ib_write_bw", 64, "rate", "Mpps", 2)}, 1.5, "ib_write_bw"},
		{"another size", r("bw", "splitnic", 64, "rate", "Mpps", 3), rows{r("bw", "ib_write_bw", 1500, "rate", "Mpps", 2)}, 0,
			""},
		{"another metric", r("bw", "splitnic", 64, "rate", "Mpps", 3),
			rows{r("bw", "ib_write_bw", 64, "bandwidth", "MiB/s", 2)}, 0, ""},
		{"both poll", r("lat", "splitnic", 64, "typical", "us", 30),
			rows{r("lat", "ib_write_lat", 64, "typical", "us", 10), r("lat", "yardstick", 64, "typical", "us", 20),
				r("lat", "yardstick-events", 64, "typical", "us", 60)}, 1.5, "yardstick"},
		{"both sleep", r("lat", "splitnic-events", 64, "typical", "us", 30),
			rows{r("lat", "yardstick", 64, "typical", "us", 20), r("lat", "yardstick-events", 64, "typical", "us", 60)}, 0.5,
			"yardstick-events"},
		{"a network", r("net", "vxlan", 1500, "tcp", "Mbit/s", 30),
			rows{r("net", "ib_write_bw", 65536, "bandwidth", "Mbit/s", 60)}, 0.5, "ib_write_bw"},
		{"a round trip is no throughput", r("net", "vxlan", 1500, "ping", "us", 30),
			rows{r("net", "ib_write_bw", 65536, "bandwidth", "Mbit/s", 60)}, 0, ""},
		{"a busy card", r("rtt", "splitnic-loaded", 1500, "p99", "us", 90),
			rows{r("rtt", "splitnic-idle", 1500, "p50", "us", 10), r("rtt", "splitnic-idle", 1500, "p99", "us", 30)}, 3,
			"splitnic-idle"},
		{"the idle one", r("rtt", "splitnic-idle", 1500, "p99", "us", 30),
			rows{r("rtt", "splitnic-loaded", 1500, "p99", "us", 90)}, 0, ""},
		{"what others are compared to", r("net", "ib_write_bw", 65536, "bandwidth", "Mbit/s", 60), nil, 0, ""},
	} {
		rs := append(rows{c.row}, c.among...)
		rs.compare()
		if rs[0].Ratio != c.ratio || rs[0].RatioTo != c.to {
			t.Errorf("%s: %v to %q, want %v to %q", c.name, rs[0].Ratio, rs[0].RatioTo, c.ratio, c.to)
		}
	}
}

func TestGoalMet(t *testing.T) {
	least, most := goal{least: 0.9}, goal{most: 1.15}
	for _, c := range []struct {
		goal  goal
		ratio float64
		want  bool
	}{
		{least, 0.9, true}, {least, 0.899, false}, {least, 2, true},
		{most, 1.15, true}, {most, 1.151, false}, {most, 0.5, true},
	} {
		if got := c.goal.met(c.ratio); got != c.want {
			t.Errorf("%+v, reached %v: %v", c.goal, c.ratio, got)
		}
	}
}
