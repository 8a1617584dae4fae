package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestInGuest has guests whose kernels lock up, or do not, and looks at which results
// count.
func TestInGuest(t *testing.T) {
	const fine, ended = "[  1.0] fine\n", "[ 61.0] " + panicOfLockup + ": hung tasks\n"
	// An attempt is what the guest's console says and how its test ends.
	type attempt struct {
		console string
		outcome outcome
	}
	for _, tc := range []struct {
		name  string
		parts [][]attempt // of each guest, as often as it is asked
		want  []outcome   // that count
	}{
		{"nothing happens", [][]attempt{{{fine, passed}}}, []outcome{passed}},
		{"a test fails", [][]attempt{{{fine, failed}}}, []outcome{failed}},
		{"a kernel locks up", [][]attempt{{{ended, failed}, {fine, passed}}}, []outcome{passed}},
		{"and a test fails", [][]attempt{{{ended, failed}, {fine, failed}}}, []outcome{failed}},
		{"a kernel locks up twice", [][]attempt{{{ended, failed}, {ended, failed}}}, []outcome{failed}},
		{"two kernels lock up", [][]attempt{{{ended, failed}, {fine, passed}}, {{ended, failed}}}, []outcome{passed, failed}},
		{"the console is an older one's", [][]attempt{{{ended, passed}}}, []outcome{passed}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			var out bytes.Buffer
			r := &runner{collector: newCollector(&out, "layer")}
			for i, attempts := range tc.parts {
				name := string(rune('a' + i))
				dir := filepath.Join(buildDir, "softroce", name)
				if err := os.MkdirAll(dir, 0o700); err != nil {
					t.Fatal(err)
				}
				err := r.inGuest(name, func() (*collector, error) {
					if len(attempts) == 0 {
						t.Fatal("it runs more often than it should")
					}
					a := attempts[0]
					attempts = attempts[1:]
					part := r.another()
					part.results = []result{{Outcome: a.outcome}}
					return part, os.WriteFile(filepath.Join(dir, "console.log"), []byte(a.console), 0o600)
				})
				if err != nil || len(attempts) > 0 {
					t.Fatalf("%v, and %d attempts are left", err, len(attempts))
				}
			}
			var got []outcome
			for _, res := range r.results {
				got = append(got, res.Outcome)
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("these count: %v, want %v", got, tc.want)
			}
			_, err := os.Stat(filepath.Join(buildDir, "lockup-a.log"))
			if again := len(tc.parts[0]) > 1; again != (err == nil) || again != strings.Contains(r.repeated, "layer") {
				t.Errorf("it ran again: %v; the console: %v; the report: %q", again, err, r.repeated)
			}
		})
	}
}
