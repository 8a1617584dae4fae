package testlist

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
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
	long := []string{"TestA", "TestB*/a+b", "TestC/a/b", "TestA2", "TestC/a/c"}
	if got := Pattern(long); got != `^(TestA|TestA2)$|^TestB.*$/^(a\+b)$|^TestC$/^a$/^(b|c)$` {
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

// TestPatterns lets a test binary with tests of several layers list those that the patterns of each
// layer select.
func TestPatterns(t *testing.T) {
	text := "package m\n\nimport \"testing\"\n\n"
	for _, name := range strings.Fields("A Long NetnsA NetnsB GuestA RDMAA PodsLong") {
		text += "func Test" + name + `(t *testing.T) { t.Run("a", run); t.Run("b", run) }` + "\n"
	}
	text += "func " + "FuzzA(f *testing.F) { f.Skip() }\nfunc run(*testing.T) {}\n"
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module m\n", "m_test.go": text} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-o", "m.test", ".")
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build.Args, err, out)
	}
	long := []string{"TestLong", "TestA/b", "TestNetnsA/*", "TestNetnsB", "TestRDMA*/b", "TestPodsLong"}
	for layer, want := range map[string]string{
		"unit":     "FuzzA TestA TestA/a",
		"netns":    "TestNetnsA",
		"softroce": "TestGuestA TestGuestA/a TestGuestA/b TestRDMAA TestRDMAA/a",
		"pods":     "",
	} {
		run, skip := Patterns(layer, long)
		cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "m.test"), "-test.v", "-test.run", run, "-test.skip", skip)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
		}
		var ran []string
		for _, m := range regexp.MustCompile(`(?m)^ *--- (?:PASS|SKIP): (\S+)`).FindAllSubmatch(out, -1) {
			ran = append(ran, string(m[1]))
		}
		slices.Sort(ran)
		if got := strings.Join(ran, " "); got != want {
			t.Errorf("%s: %s ran, want %s", layer, got, want)
		}
	}
}
