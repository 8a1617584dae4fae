package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSummarize(t *testing.T) {
	rows, err := summarize(strings.NewReader(`bw ib_write_bw 64 1 bandwidth MiB/s 3
bw splitnic 64 1 bandwidth MiB/s 1
bw ib_write_bw 64 1 bandwidth MiB/s 5
bw splitnic 64 1 bandwidth MiB/s 4
bw ib_write_bw 64 1 bandwidth MiB/s 4
bw splitnic 65535 1 bandwidth MiB/s 7
`))
	want := []row{
		{Name: "bw", Subject: "ib_write_bw", Size: 64, Queues: 1, Metric: "bandwidth", Unit: "MiB/s", Median: 4, Min: 3, Max: 5, Runs: 3},
		{Name: "bw", Subject: "splitnic", Size: 64, Queues: 1, Metric: "bandwidth", Unit: "MiB/s", Median: 2.5, Min: 1, Max: 4, Runs: 2, Ratio: 2.5 / 4, RatioTo: "ib_write_bw"},
		{Name: "bw", Subject: "splitnic", Size: 65535, Queues: 1, Metric: "bandwidth", Unit: "MiB/s", Median: 7, Min: 7, Max: 7, Runs: 1},
	}
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, rows); d != "" {
		t.Error(d)
	}
	for _, bad := range []string{"", "bw x 64 1 m u\n", "bw x 64 1 m u fast\n"} {
		if _, err := summarize(strings.NewReader(bad)); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}
