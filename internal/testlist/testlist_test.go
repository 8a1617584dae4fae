package testlist

import (
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLayerOf(t *testing.T) {
	for test, want := range map[string]string{
		"TestClaim01": "unit", "TestNetnsPing": "netns", "TestRDMAPing": "softroce", "TestGuestCable": "softroce",
		"TestMachinesCable": "machines", "TestFaultsDisk": "faults", "FuzzFrame": "unit", "TestVMDisk": "vm",
		"TestPodsPodman": "pods", "TestPackagesLife": "packages",
	} {
		if got := LayerOf(test); got != want {
			t.Errorf("%s: %s, want %s", test, got, want)
		}
		if notUnit := regexp.MustCompile(NotUnit()).MatchString(test); notUnit != (want != "unit") {
			t.Errorf("%s is no unit test: %t", test, notUnit)
		}
	}
}

// TestListed lists the tests of this module, which must contain this one and one that is not
// built with the race detector.
func TestListed(t *testing.T) {
	t.Chdir("../..")
	packages, err := Packages(t.Context(), func(test string) bool { return test != "TestLayerOf" })
	if err != nil {
		t.Fatal(err)
	}
	noRace, found := 0, false
	for _, p := range packages {
		noRace += len(p.NoRace)
		if p.Path == Module+"/protocol" && len(p.NoRace) != len(p.Tests) ||
			p.Path == Module+"/splitdrv/messaging" && len(p.NoRace) > 20 {
			t.Errorf("%s: %d of %d tests without the race detector", p.Path, len(p.NoRace), len(p.Tests))
		}
		if p.Path == Module+"/internal/testlist" {
			found = slices.Contains(p.Tests, "TestListed") && !slices.Contains(p.Tests, "TestLayerOf")
		}
		if len(p.Tests) == 0 || slices.Contains(p.Tests, "TestMain") {
			t.Errorf("%s: %q", p.Path, p.Tests)
		}
	}
	if noRace == 0 || !found {
		t.Errorf("%d tests without the race detector; this package was found: %t", noRace, found)
	}
}

func TestLong(t *testing.T) {
	const page = "# Testing\n\n`TestNot`\n\n### Long tests\n\n| tests | why |\n|---|---|\n" +
		"| `TestA`, `TestB/two of_them` | they wait for `TestC` |\n| `FuzzD` | |\n\n### Kernels\n\n| `TestE` | |\n"
	got, err := Long(page)
	if d := cmp.Diff([]string{"TestA", "TestB/two of_them", "FuzzD"}, got); d != "" || err != nil {
		t.Errorf("%v %s", err, d)
	}
	if _, err := Long("# Testing\n"); err == nil {
		t.Error("a page without the heading is accepted")
	}
	if got := Pattern([]string{"TestA", "TestB*/a+b"}); got != `^TestA$|^TestB.*$/^a\+b$` {
		t.Error(got)
	}
	for test, want := range map[string]bool{
		"TestBoth/a+b": true, "TestBoth/a+b/c": true, "TestBoth": false, "TestBoth/a+b+c": false, "TestA/a+b": false,
	} {
		if Covers("TestB*/a+b", test) != want {
			t.Errorf("%s is covered: %t", test, !want)
		}
	}
}
