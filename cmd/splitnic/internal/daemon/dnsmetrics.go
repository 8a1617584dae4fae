package daemon

import (
	"github.com/splitnic/splitnic/splitdrv/host/discovery"
)

var (
	descDNSFailures = desc("splitnic_dns_failures_total",
		"Questions for the SRV records of a name that were answered with no I/O unit, or not at all.", "name")
	descDNSUnits    = desc("splitnic_dns_iounits", "I/O units in the last answer that named any.", "name")
	descDNSAnswered = desc("splitnic_dns_answered_timestamp_seconds",
		"Unix time of the last answer that named I/O units, 0 if there was none.", "name")
)

func dnsMetrics(emit emit, names []discovery.Status) {
	for i := range names {
		s := &names[i]
		emit.count(descDNSFailures, s.Failures, s.Name)
		emit.gauge(descDNSUnits, float64(s.Units), s.Name)
		answered := 0.0
		if !s.Answered.IsZero() {
			answered = float64(s.Answered.Unix())
		}
		emit.gauge(descDNSAnswered, answered, s.Name)
	}
}
