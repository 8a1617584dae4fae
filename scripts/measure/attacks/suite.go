package attacks

import (
	"fmt"
	"slices"
	"strings"

	"github.com/splitnic/splitnic/scripts/measure/results"
)

// The states in which the honest host is measured, the subjects of its figures:
// alone, while another I/O unit on the same machine and device is attacked in the
// same way, and while its own is. What the attacker and the kernel take from
// everybody is in the second already.
const (
	none      = "none"
	elsewhere = "elsewhere"
	attack    = "attack"
)

var states = []string{none, elsewhere, attack}

// The metrics: throughput, where more is better, and times, where less is; the
// part of one processor that the attacker takes and that the attacked I/O unit
// does (without an attack, the honest host's), and how often the attacker has done
// what it does in a second.
const (
	throughput  = "tcp"
	latency     = "ping"
	tail        = "ping-p99"
	attackerCPU = "attacker-cpu"
	unitCPU     = "unit-cpu"
	rate        = "rate"
)

// Suite is that of `make bench-attacks`, and natively of `make bench-attacks-native`.
func Suite(name string) *results.Suite {
	return &results.Suite{
		Name: name, Rounds: 5,
		// A round's figures are of neighbouring seconds, in which the machine is as
		// busy with other things.
		ByRound:    true,
		References: references, Goals: goals, Tables: tables,
		Remark: "None: without an attack. Elsewhere: the same attack on another I/O unit of the machine.",
	}
}

// comparable are the metrics of which a ratio says something.
var comparable = []string{throughput, latency, tail}

// references compares an attack with the same one elsewhere.
func references(r *results.Row) []results.Key {
	if r.Subject != attack || !slices.Contains(comparable, r.Metric) {
		return nil
	}
	return []results.Key{in(r.Key, elsewhere)}
}

// in is the key of the same metric in another state.
func in(k results.Key, state string) results.Key {
	k.Subject = state
	return k
}

// goals: nobody loses more than a tenth to the attack itself.
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

// slower is by how many per cent the row in state attack is worse than in another.
func slower(rs results.Rows, k results.Key, than string) string {
	from, to := rs.Find(in(k, than)), rs.Find(in(k, attack))
	if from == nil || to == nil {
		return "-"
	}
	r := results.RatioByRound(to, from)
	if k.Metric == throughput {
		r = 2 - r // of a tenth less is left nine tenths
	}
	return fmt.Sprintf("%+.0f %%", 100*(r-1))
}

// tables has a line for each class of attacks.
func tables(rs results.Rows) []results.Table {
	t := results.Table{Title: "What an honest host has: none, elsewhere, attack; slower than none, than elsewhere"}
	t.Add("attack", "TCP, Mbit/s", "slower", "ping, us", "slower", "99th percentile, us", "slower",
		"processors: attacker, I/O unit, unit alone", "per second")
	for i := range rs {
		k := rs[i].Key
		if k.Subject != none || k.Metric != throughput && (k.Metric != latency || rs.With(k, throughput) != nil) {
			continue // a class has either, or both
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
