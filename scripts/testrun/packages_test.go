package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTestNames(t *testing.T) {
	src := "package p\n\nfunc TestMain(m *testing.M) {}\nfunc TestA(t *testing.T) {\n}\n" +
		"func FuzzB(f *testing.F) {}\nfunc ExampleC() {}\nfunc (x T) TestD() {}\nfunc helper() {\n\tfunc TestE(\n}\n// func TestF(\n"
	if d := cmp.Diff([]string{"TestA", "FuzzB", "ExampleC"}, testNames([]byte(src))); d != "" {
		t.Error(d)
	}
}

func TestPick(t *testing.T) {
	r := &runner{packages: []testPackage{
		{path: "a", tests: []string{"TestX", "TestNetnsX", "TestNetnsY"}},
		{path: "b", tests: []string{"TestRDMAX"}},
	}}
	for _, tc := range []struct {
		prefix, filter string
		want           []string
	}{
		{netnsPrefix, "", []string{"^(TestNetnsX|TestNetnsY)$"}},
		{netnsPrefix, "Y$", []string{"^(TestNetnsY)$"}},
		{rdmaPrefix, "", []string{"^(TestRDMAX)$"}},
		{rdmaPrefix, "Y$", nil},
		{guestPrefix, "", nil},
	} {
		r.filter = nil
		if tc.filter != "" {
			r.filter = regexp.MustCompile(tc.filter)
		}
		var got []string
		for _, p := range r.pick(tc.prefix) {
			got = append(got, exactly(p.tests))
		}
		if d := cmp.Diff(tc.want, got); d != "" {
			t.Errorf("%s with filter %q: %s", tc.prefix, tc.filter, d)
		}
	}
}

// TestGuestRuns distributes tests to guests. It expects each test in one guest, and the
// packages with several guests first.
func TestGuestRuns(t *testing.T) {
	runs := guestRuns([]testPackage{
		{path: module + "/a", tests: []string{"TestRDMAA", "TestRDMAB"}},
		{path: module + "/test/b", tests: []string{"TestRDMAA", "TestRDMAB", "TestRDMAC"}, guests: 2},
		{path: module + "/c", tests: []string{"TestRDMAA"}, guests: 2}, // -run has left one of its tests
	})
	var got []string
	for _, g := range runs {
		got = append(got, short(g.path)+" "+g.name+" "+exactly(g.tests))
	}
	if d := cmp.Diff([]string{
		"test/b test-b-1 ^(TestRDMAA|TestRDMAC)$", "test/b test-b-2 ^(TestRDMAB)$", "a a ^(TestRDMAA|TestRDMAB)$",
		"c c ^(TestRDMAA)$",
	}, got); d != "" {
		t.Error(d)
	}
}

// TestGuestsOf reads the number of guests of a package from no file, a valid and an invalid one.
func TestGuestsOf(t *testing.T) {
	for _, tc := range []struct {
		text string
		want int
		ok   bool
	}{{"", 0, true}, {"3\n", 3, true}, {"three\n", 0, false}} {
		dir := t.TempDir()
		if tc.text != "" {
			if err := os.Mkdir(filepath.Join(dir, "testdata"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "testdata/guests"), []byte(tc.text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if n, err := guestsOf(dir); n != tc.want || (err == nil) != tc.ok {
			t.Errorf("%q: %d, %v", tc.text, n, err)
		}
	}
}

func TestChooseLayers(t *testing.T) {
	all, err := chooseLayers(nil)
	var names []string
	for _, l := range all {
		names = append(names, l.name)
	}
	if d := cmp.Diff([]string{"unit", "netns", "softroce", "machines"}, names); d != "" || err != nil {
		t.Errorf("without names: %s, %v", d, err)
	}
	if long, err := chooseLayers([]string{"faults"}); err != nil || len(long) != 1 {
		t.Errorf("faults: %d layers, %v", len(long), err)
	}
	one, err := chooseLayers([]string{"netns"})
	if err != nil || len(one) != 1 || one[0].name != "netns" {
		t.Errorf("netns: %d layers, %v", len(one), err)
	}
	if _, err := chooseLayers([]string{"units"}); err == nil {
		t.Error("a layer that does not exist was accepted")
	}
}
