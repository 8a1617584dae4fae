package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const sample = `stall none tcp_mbps 100
stall elsewhere tcp_mbps 50
stall attack tcp_mbps 45
stall none ping_us 200
stall elsewhere ping_us 400
stall attack ping_us 440
stall none tcp_mbps 10
stall elsewhere tcp_mbps 5
stall attack tcp_mbps 5
stall none tcp_mbps 1000
stall elsewhere tcp_mbps 100
stall attack tcp_mbps 80
stall attack rate 12
keys none tcp_mbps 7
`

func TestReport(t *testing.T) {
	dir := t.TempDir()
	in, out := filepath.Join(dir, "results"), filepath.Join(dir, "json")
	if err := os.WriteFile(in, []byte(sample), 0o600); err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := report(in, out, &text); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(text.String(), "\n"); n != 4 {
		t.Errorf("%d lines:\n%s", n, &text)
	}
	// What was not measured is not 0.
	lines := strings.Split(text.String(), "\n")
	for i, want := range []string{"- - - 12", "- - - -"} {
		f := strings.Fields(lines[2+i])
		if got := strings.Join(f[len(f)-4:], " "); got != want {
			t.Errorf("processors and rate are shown as %q, want %q", got, want)
		}
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	var doc struct{ Classes []row }
	if err := json.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	if len(doc.Classes) != 2 || doc.Classes[0].Class != "stall" || doc.Classes[1].Class != "keys" {
		t.Fatalf("%+v", doc)
	}
	// The medians of 55, 50 and 92, and of 10, 0 and 20.
	want := outcome{None: 100, Elsewhere: 50, Attack: 45, SlowerThanNone: 55, SlowerThanElsewhere: 10}
	got := doc.Classes[0].Metrics[throughput]
	for _, v := range []*float64{&got.SlowerThanNone, &got.SlowerThanElsewhere} {
		*v = float64(int(*v*1000+0.5)) / 1000
	}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if p := doc.Classes[0].Metrics[latency]; p.SlowerThanNone < 119.9 || p.SlowerThanNone > 120.1 ||
		p.SlowerThanElsewhere < 9.9 || p.SlowerThanElsewhere > 10.1 {
		t.Errorf("%+v", p)
	}
}

func TestReportRefuses(t *testing.T) {
	for _, line := range []string{"stall none tcp_mbps", "stall never tcp_mbps 1", "stall none tcp_mbps x",
		"stall none tcp_mbps 1 2"} {
		if _, _, err := parse(strings.NewReader(line + "\n")); err == nil {
			t.Errorf("%q is taken", line)
		}
	}
}
