package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// counterList is a table of the counters of a data channel in Markdown, for
// docs/counters.md.
func counterList() string {
	var b strings.Builder
	fmt.Fprint(&b, "| in the status | in the metrics | counts |\n|---|---|---|\n")
	for _, c := range messaging.Counters() {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", c.Name, metricOf(c), c.Help)
	}
	return b.String()
}

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
