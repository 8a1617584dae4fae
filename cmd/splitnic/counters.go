package main

import (
	"fmt"
	"strings"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/daemon"
	"github.com/splitnic/splitnic/internal/counter"
	"github.com/splitnic/splitnic/splitdrv/iounit"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// metricOf returns the metric of a counter, and which part of the metric the counter is.
func metricOf(c counter.Counter) string {
	family, part := daemon.FamilyOf(c)
	if part == "" {
		return "`" + daemon.MetricName(family) + "`"
	}
	return fmt.Sprintf("`%s`, `%s`", daemon.MetricName(family), part)
}

// countersPage returns the sections about counters in the manual page of `splitnic status`.
func countersPage() string {
	var b strings.Builder
	for _, table := range []struct {
		of       string
		counters []counter.Counter
	}{{"data channel", messaging.Counters()}, {"host of an I/O unit", iounit.HostCounters()},
		{"direct connection at an I/O unit", iounit.DirectCounts()}} {
		fmt.Fprintf(&b, "# COUNTERS OF A %s\nIn **--json** and in the metrics:\n", strings.ToUpper(table.of))
		for _, c := range table.counters {
			fmt.Fprintf(&b, "\n**%s** (%s)\n: %s\n", c.Name, metricOf(c), c.Help)
		}
	}
	return b.String()
}
