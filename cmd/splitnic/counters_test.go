package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/splitnic/splitnic/internal/counter"
	"github.com/splitnic/splitnic/splitdrv/iounit"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// counterList returns a Markdown table of counters for docs/counters.md.
func counterList(counters []counter.Counter) string {
	var b strings.Builder
	fmt.Fprint(&b, "| in the status | in the metrics | counts |\n|---|---|---|\n")
	for _, c := range counters {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", c.Name, metricOf(c), c.Help)
	}
	return b.String()
}

// TestCountersDocument expects docs/counters.md to have the tables of the program's counters.
func TestCountersDocument(t *testing.T) {
	page, err := os.ReadFile("../../docs/counters.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, counters := range [][]counter.Counter{messaging.Counters(), iounit.HostCounters(), iounit.DirectCounts()} {
		if want := counterList(counters); !strings.Contains(string(page), "\n\n"+want) {
			t.Errorf("docs/counters.md does not have this table:\n%s", want)
		}
	}
}
