package main

import (
	"os"
	"strings"
	"testing"
)

// TestCountersDocument wants the table of docs/counters.md to be that of the program.
func TestCountersDocument(t *testing.T) {
	page, err := os.ReadFile("../../docs/counters.md")
	if err != nil {
		t.Fatal(err)
	}
	if want := counterList(); !strings.Contains(string(page), "\n\n"+want) {
		t.Errorf("docs/counters.md does not have this table:\n%s", want)
	}
}
