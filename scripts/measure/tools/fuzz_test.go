package tools

import (
	"strings"
	"testing"
)

// FuzzFigures reads figures from any output of programs. Output without a figure has to be an
// error.
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
		_, _ = parseDemo(strings.NewReader(s)) // the error says what is missing
	})
}
