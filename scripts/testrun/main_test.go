package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/splitnic/splitnic/internal/testlist"
)

// file is the end of the events of a test.
type file struct{ bytes.Buffer }

func (*file) Close() error { return nil }

// TestJobs distributes tests to guests. It expects each in one job, parts of divided packages
// first and the harness last, and packages with the same kind of guest beside each other.
func TestJobs(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "testdata"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "testdata/guest-smp"), []byte("2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &runner{packages: []testlist.Package{
		{Path: testlist.Module + "/ci/softroce", Tests: []string{"TestGuestA"}},
		{Path: testlist.Module + "/splitdrv/directed", Tests: []string{"TestRDMAD"}},
		{Path: testlist.Module + "/verbs", Dir: dir, Tests: []string{"TestRDMAV"}},
		{Path: testlist.Module + "/test/e2e", Tests: strings.Fields("TestRDMA1 TestRDMA2 TestRDMA3 TestRDMA4 TestRDMA5")},
		{Path: testlist.Module + "/tap", Tests: []string{"TestRDMAT"}},
	}}
	var got []string
	for _, p := range r.jobs() {
		got = append(got, testlist.Short(p.Path)+" "+strings.Join(p.Tests, ","))
	}
	want := []string{
		"test/e2e TestRDMA1,TestRDMA5", "test/e2e TestRDMA2", "test/e2e TestRDMA3", "test/e2e TestRDMA4",
		"verbs TestRDMAV", "splitdrv/directed TestRDMAD", "tap TestRDMAT", "ci/softroce TestGuestA",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestAwait has a guest wait for a file. It expects the guest to wait until the file exists, and not
// to wait when no jobs are left.
func TestAwait(t *testing.T) {
	for _, jobs := range []int{1, 0} {
		synctest.Test(t, func(t *testing.T) {
			r := &runner{when: filepath.Join(t.TempDir(), "alone")}
			next := make(chan testlist.Package, 1)
			for range jobs {
				next <- testlist.Package{}
			}
			returned := make(chan struct{})
			go func() {
				r.await(t.Context(), next)
				close(returned)
			}()
			has := func() bool {
				time.Sleep(10 * time.Second)
				select {
				case <-returned:
					return true
				default:
					return false
				}
			}
			if early := has(); early != (jobs == 0) {
				t.Errorf("with %d jobs, and no file: returned: %t", jobs, early)
			}
			if err := os.WriteFile(r.when, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if !has() {
				t.Errorf("with %d jobs: it waits although the file exists", jobs)
			}
			if len(next) > 0 {
				<-next
			}
			<-returned
		})
	}
}

// TestProgramFails runs a test of this package by a program that may fail after it. It expects
// the failure in the events, and no error.
func TestProgramFails(t *testing.T) {
	top, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, then string
		fails      bool
	}{
		{"passes", "exit 0", false},
		{"leaves something behind", "echo left behind: netns x; exit 1", true},
		{"dies before it can say", "kill -9 $$", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			program := filepath.Join(t.TempDir(), "program")
			if err := os.WriteFile(program, []byte("#!/bin/bash\n\"$@\"\n"+tc.then+"\n"), 0o700); err != nil {
				t.Fatal(err)
			}
			var out file
			r := &runner{top: top, events: newEvents(&out, "unit", 1)}
			tests := []testlist.Package{{Path: ".", Tests: []string{"TestEvents"}}}
			if err := r.goTest(t.Context(), "", tests, "-exec", "'"+program+"'"); err != nil {
				t.Fatal(err)
			}
			if err := r.events.close(); err != nil {
				t.Fatal(err)
			}
			if failed := strings.Contains(out.String(), `"Action":"fail"`); failed != tc.fails || r.events.done != 1 {
				t.Errorf("failed: %t, %d tests:\n%s", failed, r.events.done, &out.Buffer)
			}
		})
	}
}

// TestPass runs programs in place of go test. That a test has failed is no error: the events say so. Each
// other end is one, because no event may say why.
func TestPass(t *testing.T) {
	const event = `{"Action":"run","Package":"p","Test":"TestA"}`
	for _, c := range []struct {
		script string
		fails  bool
	}{{"exit 0", false}, {"exit 1", false}, {"exit 2", true}, {"kill -9 $$", true}} {
		var out file
		r := &runner{events: newEvents(&out, "unit", 1)}
		err := r.pass(exec.CommandContext(t.Context(), "sh", "-c", "echo '"+event+"'; "+c.script))
		if (err != nil) != c.fails || out.String() != event+"\n" {
			t.Errorf("%s: %v, %s", c.script, err, &out.Buffer)
		}
		if err := r.events.close(); err != nil {
			t.Error(err)
		}
	}
}

// TestEvents expects top-level tests to be counted, and all events to be passed on as they are.
func TestEvents(t *testing.T) {
	const in = `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Test":"TestA/x"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"skip","Package":"p","Test":"TestB"}
{"Action":"fail","Package":"p"}
`
	var out file
	e := newEvents(&out, "unit", 2)
	if err := e.read(strings.NewReader(in)); err != nil {
		t.Fatal(err)
	}
	if err := e.close(); err != nil || out.String() != in || e.done != 2 || e.last != "p TestB" {
		t.Errorf("%v: %d tests, the last %s:\n%s", err, e.done, e.last, &out.Buffer)
	}
}

// TestLinked runs a linker by scripts/linked. It expects the linker to run once for each build ID of
// a package and kind of build in a row, each program where the linker was to write it, and other
// tools to run as they are.
func TestLinked(t *testing.T) {
	top := t.TempDir()
	script, err := os.ReadFile("../linked")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(top, "scripts"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"scripts/linked": string(script),
		"link":           "#!/bin/sh\necho \"$@\" >>log\necho \"$@\" >program\n",
		"compile":        "#!/bin/sh\necho compiles \"$@\"\n",
	} {
		if err := os.WriteFile(filepath.Join(top, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	linked := func(importPath string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), filepath.Join(top, "scripts/linked"), args...)
		cmd.Dir, cmd.Env = top, append(os.Environ(), "TOOLEXEC_IMPORTPATH="+importPath)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	links := 0
	for _, tc := range []struct {
		importPath, id string
		kind           string
		again          bool // the linker runs
	}{
		{"m/a.test", "A/x/y/A", "-w", true},
		{"m/a.test", "A/x/y/A", "-w", false},
		{"m/b.test", "A/x/y/A", "-w", true},
		{"m/a.test", "B/x/y/B", "-race", true},
		{"m/a.test", "A/x/y/A", "-w", false},
		{"m/a.test", "B/x/y/B", "-race", false},
		{"m/a.test", "C/x/y/C", "-w", true},
		{"m/a.test", "C/x/y/C", "-w", false},
		{"m/a.test", "A/x/y/A", "-w", true}, // only the last one is kept
	} {
		args := []string{"-o", "program", tc.kind, "-buildid=" + tc.id, tc.importPath}
		if tc.again {
			links++
		}
		linked(tc.importPath, append([]string{"./link"}, args...)...)
		program, err := os.ReadFile(filepath.Join(top, "program"))
		if err != nil || string(program) != strings.Join(args, " ")+"\n" {
			t.Errorf("%v: the program is %q, %v", args, program, err)
		}
		if err := os.Remove(filepath.Join(top, "program")); err != nil {
			t.Fatal(err)
		}
		if log, err := os.ReadFile(filepath.Join(top, "log")); err != nil || strings.Count(string(log), "\n") != links {
			t.Errorf("%v: linked, want %d times in all: %v\n%s", args, links, err, log)
		}
	}
	if got := linked("m/a", "./compile", "-o", "x", "-buildid=A/A"); got != "compiles -o x -buildid=A/A\n" {
		t.Errorf("the compiler was called so: %q", got)
	}
	linked("", "./link", "-V=full")
	if log, err := os.ReadFile(filepath.Join(top, "log")); err != nil || !strings.HasSuffix(string(log), "\n-V=full\n") {
		t.Errorf("%v\n%s", err, log)
	}
}
