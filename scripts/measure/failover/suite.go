// Package failover describes the figures of BenchmarkRDMAFailover and TestRDMARestart of
// test/e2e.
package failover

import "github.com/splitnic/splitnic/scripts/measure/results"

// Suite returns the suite of `make bench-failover`.
func Suite() *results.Suite {
	// There are gaps, because a session on standby has only some of the stages.
	return &results.Suite{Name: "bench-failover", Rounds: 50, Gaps: true, Aims: []results.Aim{
		{What: "carrier lost after the kill", Metric: "carrier lost", Op: "<=", Bound: 50},
		{What: "first answer through the other I/O unit", Metric: "first answer", Op: "<=", Bound: 300},
		{What: "TCP: connections broken", Metric: "connections broken", Op: "<=", Bound: 0},
		{What: "TCP: blocks wrong", Metric: "blocks wrong", Op: "<=", Bound: 0},
	}}
}

// Restarts returns the suite of `make bench-restart`.
func Restarts() *results.Suite { return &results.Suite{Name: "bench-restart", Rounds: 25} }
