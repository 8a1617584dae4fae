package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestCauseOf reads consoles of kernels that died. It expects a cause only for those that the
// emulation has killed.
func TestCauseOf(t *testing.T) {
	const trap = "[   66.1] Oops: int3: 0000 [#1] PREEMPT SMP NOPTI\n" +
		"[   66.2] RIP: 0010:__netif_receive_skb_core.constprop.0+0x3d/0x1080\n" +
		"[   66.2] Code: 81 ec cc 48 89 5c 24 30 "
	for _, tc := range []struct {
		console string
		known   bool
	}{
		{"[ 61.0] " + panicOfLockup + ": hung tasks\n", true},
		{"[ 61.0] watchdog: BUG: soft lockup - CPU#1 stuck for 61s!\n", false},
		{trap + "0f <1f> 44 00 00 0f 1f\n", true},
		{trap + "c3 <1f> 44 00 00 0f 1f\n", true},
		{trap + "ec <1f> 44 00 00 0f 1f\n", true},
		{trap + "cc <1f> 44 00 00 0f 1f\n", false},
		{trap + "cc <1f> 44 00 00 0f 1f\n[   66.3] Code: 66 90 <49> 3b 66\n", false},
		{trap + "0f\n", false},
		{"[   66.1] Oops: 0000 [#1] PREEMPT SMP NOPTI\n[   66.2] Code: 24 30 0f <1f> 44 00 00\n", false},
		{"", false},
	} {
		if got := causeOf([]byte(tc.console)); (got != "") != tc.known {
			t.Errorf("%q: %q", tc.console, got)
		}
	}
}

// TestInGuest runs parts in guests whose kernels lock up, or do not, and checks which results
// count.
func TestInGuest(t *testing.T) {
	const fine, ended = "[  1.0] fine\n", "[ 61.0] " + panicOfLockup + ": hung tasks\n"
	// attempt has the text of the guest's console and the outcome of its test.
	type attempt struct {
		console string
		outcome outcome
	}
	for _, tc := range []struct {
		name  string
		parts [][]attempt // attempts of each guest, in order
		want  []outcome   // the outcomes that count
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
			_, err := os.Stat(filepath.Join(buildDir, "guest-a.log"))
			if again := len(tc.parts[0]) > 1; again != (err == nil) || again != strings.Contains(r.repeated, "layer") {
				t.Errorf("it ran again: %v; the console: %v; the report: %q", again, err, r.repeated)
			}
		})
	}
}
