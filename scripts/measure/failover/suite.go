// Package failover describes the figures of BenchmarkRDMAFailover and TestRDMARestart of
// test/e2e.
package failover

import "github.com/splitnic/splitnic/scripts/measure/results"

// Suite returns the suite of `make bench-failover`.
func Suite() *results.Suite {
	// There are gaps, because a session on standby has only some of the stages.
	return &results.Suite{
		Name: "bench-failover", Rounds: 50, Gaps: true,
		Goals: func(rs results.Rows) (list []results.Goal) {
			for i := range rs {
				r := &rs[i]
				switch {
				case r.Metric == "carrier lost":
					list = append(list, r.ReachMedian("carrier lost after the kill", "<=", 50)...)
				case r.Metric == "first answer":
					list = append(list, r.ReachMedian("first answer through the other I/O unit", "<=", 300)...)
				case r.Metric == "connections broken", r.Metric == "blocks wrong":
					list = append(list, r.ReachMedian("TCP: "+r.Metric, "<=", 0)...)
				}
			}
			return list
		},
		Tables: results.BySubject("kill -9 of the I/O unit in use"),
	}
}

// Restarts returns the suite of `make bench-restart`.
func Restarts() *results.Suite {
	return &results.Suite{Name: "bench-restart", Rounds: 25, Tables: results.BySubject("Restarts under a TCP connection")}
}
