package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReport(t *testing.T) {
	pass := result{Layer: "unit", Package: "p", Test: "TestA", Outcome: passed}
	fail := result{Layer: "unit", Package: "p", Test: "TestB", Outcome: failed}
	skip := result{Layer: "unit", Package: "p", Test: "TestC", Outcome: skipped, Reason: "why not"}
	for _, tc := range []struct {
		name   string
		strict bool
		layers [][]result
		ok     bool
		last   string
		said   string
	}{
		{"passed", true, [][]result{{pass, pass}, {pass}}, true, "3 passed, 0 failed, 0 skipped", "total"},
		{"failed", false, [][]result{{pass, fail}}, false, "1 passed, 1 failed, 0 skipped", "p TestB"},
		{"skipped", false, [][]result{{pass, skip}}, true, "1 passed, 0 failed, 1 skipped", "p TestC: why not"},
		{"skipped and strict", true, [][]result{{pass, skip}}, false, "1 passed, 0 failed, 1 skipped", "p TestC: why not"},
		{"a layer ran nothing", false, [][]result{{pass}, nil}, false, "1 passed, 1 failed, 0 skipped", "ran no test"},
		{"a layer skipped everything", false, [][]result{{skip}}, false, "0 passed, 1 failed, 1 skipped", "ran no test"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := report{strict: tc.strict, layers: map[string]counts{}}
			for i, results := range tc.layers {
				r.add([]string{"unit", "netns"}[i], results, 1.5)
			}
			var out strings.Builder
			ok := r.print(&out)
			lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
			if last := lines[len(lines)-1]; ok != tc.ok || last != tc.last || !strings.Contains(out.String(), tc.said) {
				t.Errorf("ok is %t, want %t; the last line must be %q, and %q must be said:\n%s", ok, tc.ok, tc.last, tc.said, &out)
			}
		})
	}
}

func TestReportFiles(t *testing.T) {
	dir := t.TempDir()
	r := report{layers: map[string]counts{}}
	r.add("unit", []result{{Layer: "unit", Package: "p", Test: "TestA", Outcome: passed, Seconds: 0.5}}, 1.5)
	if err := r.write(dir); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "test.json"))
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]map[string]float64
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]map[string]float64{"unit": {"passed": 1, "failed": 0, "skipped": 0, "seconds": 1.5}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	b, err = os.ReadFile(filepath.Join(dir, "tests.jsonl"))
	if want := `{"layer":"unit","package":"p","test":"TestA","outcome":"pass","seconds":0.5}` + "\n"; err != nil ||
		string(b) != want {
		t.Errorf("tests.jsonl holds %q, %v, want %q", b, err, want)
	}
}

func TestStrict(t *testing.T) {
	for _, tc := range []struct {
		env  map[string]string
		want bool
	}{
		{nil, false},
		{map[string]string{"CI": "true"}, true},
		{map[string]string{"CI": "1"}, true},
		{map[string]string{"CI": "false"}, false},
		{map[string]string{"SPLITNIC_STRICT": "1"}, true},
	} {
		if got := strict(func(name string) string { return tc.env[name] }); got != tc.want {
			t.Errorf("with %v: %t", tc.env, got)
		}
	}
}
