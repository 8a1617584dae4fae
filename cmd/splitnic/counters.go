package main

import (
	"fmt"
	"strings"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/daemon"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// metricOf is where the metrics have a counter.
func metricOf(c messaging.Counter) string {
	family, part := daemon.FamilyOf(c)
	if part == "" {
		return "`" + daemon.MetricName(family) + "`"
	}
	return fmt.Sprintf("`%s`, `%s`", daemon.MetricName(family), part)
}

// countersPage is the section of the manual page of the status about them.
func countersPage() string {
	var b strings.Builder
	fmt.Fprint(&b, "# COUNTERS\nOf each data channel, in **--json** and in the metrics:\n")
	for _, c := range messaging.Counters() {
		fmt.Fprintf(&b, "\n**%s** (%s)\n: %s\n", c.Name, metricOf(c), c.Help)
	}
	return b.String()
}
