package tools

import (
	"strings"
	"testing"
)

// FuzzFigures is about the output of programs that figures are read from: what
// is no figure is an error.
func FuzzFigures(f *testing.F) {
	for _, s := range []string{
		"64 bytes from 10.0.0.1: icmp_seq=1 ttl=64 time=0.5 ms\n", "time=x ms\n", " time=0 ms\n",
		`{"end":{"sum_received":{"seconds":1,"bits_per_second":1e6,"packets":10,"lost_packets":1}},"start":{"test_start":{"blksize":100}}}`,
		`{"error":"no"}`, "ping_sent 3\nmode tcg\n", "",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for name, read := range Filters {
			if text, err := read(strings.NewReader(s)); err == nil && text == "" {
				t.Errorf("%s of %q is nothing", name, s)
			}
		}
		_, _ = parseDemo(strings.NewReader(s)) // says what is missing
	})
}
