package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

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

// TestProgramFails runs a test of this package by a program that may fail after it. It expects
// the failure in the events, and no error.
func TestProgramFails(t *testing.T) {
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
			r := &runner{events: newEvents(&out, "unit", 1)}
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
