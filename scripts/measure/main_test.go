package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/splitnic/splitnic/scripts/measure/results"
)

// TestSuitesHaveTargets expects a target of the Makefile for each suite.
func TestSuitesHaveTargets(t *testing.T) {
	text, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range suites {
		if !strings.Contains(string(text), "\n"+s.Name+": ##") {
			t.Errorf("there is no target %s", s.Name)
		}
		if s.Rounds < 1 {
			t.Errorf("%s has no rounds", s.Name)
		}
	}
}

// TestOtherSuite runs a suite that a program measures, and shows the results. A failure of the
// program has to be an error.
func TestOtherSuite(t *testing.T) {
	t.Setenv("ROUNDS", "2")
	dir := t.TempDir()
	script := filepath.Join(dir, "script")
	line := `{"group":"failover","subject":"cold","size":1500,"queues":1,"metric":"first answer","unit":"ms","value":300}`
	err := os.WriteFile(script, []byte("#!/bin/sh\necho '"+line+"' >>\"$1/samples.jsonl\"\nexit \"$2\"\n"), 0o755)
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"bench-failover", "-dir", dir, script, dir}
	if err := run(t.Context(), append(args, "0")); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "results.json")
	f, err := results.Load(file)
	if err != nil || f.Rounds != 2 || len(f.Rows) != 1 || len(f.Goals) != 1 || !f.Goals[0].Met {
		t.Errorf("%+v, %v", f, err)
	}
	if err := run(t.Context(), []string{"show", file}); err != nil {
		t.Error(err)
	}
	if err := run(t.Context(), append(args, "3")); err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("a program that fails: %v", err)
	}
}

func TestMistakes(t *testing.T) {
	t.Setenv("ROUNDS", "")
	for _, line := range []string{
		"", "nonsense", "bench-native -rounds 0", "bench -rounds", "show", "show /nowhere", "serve",
		"serve relay a b c d", "demo one",
	} {
		if err := run(t.Context(), strings.Fields(line)); err == nil || errors.Is(err, context.Canceled) {
			t.Errorf("%q: %v", line, err)
		}
	}
	t.Setenv("ROUNDS", "few")
	if err := run(t.Context(), []string{"bench-native"}); err == nil || !strings.Contains(err.Error(), "ROUNDS") {
		t.Error(err)
	}
}
