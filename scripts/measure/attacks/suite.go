package attacks

import (
	"fmt"
	"slices"
	"strings"

	"github.com/splitnic/splitnic/scripts/measure/results"
)

// The states in which the honest host is measured. They are the subjects of its figures: without
// an attack, while another I/O unit on the same machine and device is attacked in the same way,
// and while the host's own I/O unit is attacked. The second state already includes what the
// attacker and the kernel take from all processes.
const (
	none      = "none"
	elsewhere = "elsewhere"
	attack    = "attack"
)

var states = []string{none, elsewhere, attack}

// The metrics: throughput, where more is better; times, where less is better; the parts of one
// processor that the attacker uses, and that the attacked I/O unit uses (without an attack, the
// I/O unit of the honest host); and how many attacks per second the attacker completes.
const (
	throughput  = "tcp"
	latency     = "ping"
	tail        = "ping-p99"
	attackerCPU = "attacker-cpu"
	unitCPU     = "unit-cpu"
	rate        = "rate"
)

// Suite returns the suite of `make bench-attacks` or `make bench-attacks-native`, by its name.
func Suite(name string) *results.Suite {
	return &results.Suite{
		Name: name, Rounds: 5,
		// The figures of a round are measured within seconds of each other, while the machine has
		// the same other load.
		ByRound:    true,
		References: references, Goals: goals, Tables: tables,
		Remark: "None: without an attack. Elsewhere: the same attack on another I/O unit of the machine.",
	}
}

// comparable has the metrics of which a ratio is meaningful.
var comparable = []string{throughput, latency, tail}

// references returns the key of the same attack elsewhere, for the state attack.
func references(r *results.Row) []results.Key {
	if r.Subject != attack || !slices.Contains(comparable, r.Metric) {
		return nil
	}
	return []results.Key{in(r.Key, elsewhere)}
}

// in returns the key of the same metric in another state.
func in(k results.Key, state string) results.Key {
	k.Subject = state
	return k
}

// goals returns the goals: an honest host loses at most a tenth to the attack itself.
func goals(rs results.Rows) (list []results.Goal) {
	for i := range rs {
		r := &rs[i]
		switch r.Metric {
		case throughput:
			list = append(list, r.ReachRatio(r.Group+": TCP", ">=", 0.9)...)
		case tail:
			list = append(list, r.ReachRatio(r.Group+": 99th percentile of ping", "<=", 1.1)...)
		}
	}
	return list
}

// slower returns by how many per cent the state attack is worse than another state.
func slower(rs results.Rows, k results.Key, than string) string {
	from, to := rs.Find(in(k, than)), rs.Find(in(k, attack))
	if from == nil || to == nil {
		return "-"
	}
	r := results.RatioByRound(to, from)
	if k.Metric == throughput {
		r = 2 - r // a ratio of 0.9 is 10 % slower
	}
	return fmt.Sprintf("%+.0f %%", 100*(r-1))
}

// tables returns a table with a line for each class of attacks.
func tables(rs results.Rows) []results.Table {
	t := results.Table{Title: "What an honest host has: none, elsewhere, attack; slower than none, than elsewhere"}
	t.Add("attack", "TCP, Mbit/s", "slower", "ping, us", "slower", "99th percentile, us", "slower",
		"processors: attacker, I/O unit, unit alone", "per second")
	for i := range rs {
		k := rs[i].Key
		if k.Subject != none || k.Metric != throughput && (k.Metric != latency || rs.With(k, throughput) != nil) {
			continue // a class has one of these metrics, or both
		}
		cell := func(metric, state string) string {
			if r := rs.With(in(k, state), metric); r != nil {
				return results.Figure(r.Median)
			}
			return "-"
		}
		line := []string{k.Group}
		for _, k.Metric = range comparable {
			var medians []string
			for _, s := range states {
				medians = append(medians, cell(k.Metric, s))
			}
			line = append(line, strings.Join(medians, ", "), slower(rs, k, none)+", "+slower(rs, k, elsewhere))
		}
		t.Add(append(line, cell(attackerCPU, attack)+", "+cell(unitCPU, attack)+", "+cell(unitCPU, none),
			cell(rate, attack))...)
	}
	return []results.Table{t}
}
