// Package softroce describes the figures of scripts/bench-inside, which compares the messaging
// layer and the whole card with the RDMA device and other networks.
package softroce

import (
	"strings"

	"github.com/splitnic/splitnic/scripts/measure/results"
)

// Suite returns the suite of `make bench`.
func Suite() *results.Suite {
	return &results.Suite{Name: "bench", Rounds: 5, References: references, Goals: goals, Tables: tables, Plots: plots}
}

// references returns the keys of the rows to which r can be compared. For a latency there is only
// one.
func references(r *results.Row) []results.Key {
	of := func(size int, subjects ...string) []results.Key {
		var list []results.Key
		for _, s := range subjects {
			list = append(list, results.Key{Group: r.Group, Subject: s, Size: size, Queues: r.Queues, Metric: r.Metric})
		}
		return list
	}
	ours, sleeps := strings.HasPrefix(r.Subject, splitnic), strings.HasSuffix(r.Subject, events)
	switch {
	case r.Group == "bw" && ours:
		return append(of(r.Size, yardstick, yardstick+events), of(perftestSize(r.Size), writeBW)...)
	case r.Group == "bw" && r.Subject != writeBW:
		return of(perftestSize(r.Size), writeBW)
	case r.Group == "pps":
		list := of(r.Size, yardstick, yardstick+events, writeBW)
		for i := range list {
			list[i].Group = "bw"
		}
		return list
	case r.Group == "lat" && ours && sleeps:
		return of(r.Size, yardstick+events)
	case r.Group == "lat" && ours:
		return of(r.Size, yardstick)
	case r.Group == "lat" && r.Subject != writeLat:
		return of(perftestSize(r.Size), writeLat)
	case r.Group == "net" && r.Unit == "Mbit/s" && r.Subject != writeBW:
		return []results.Key{rawMbps}
	case r.Group == "rtt" && r.Subject != idle:
		return of(r.Size, idle)
	case r.Subject == direct:
		return of(r.Size, indirect)
	case strings.HasPrefix(r.Group, tunnel) && r.Subject == splitnic:
		return of(r.Size, copyLoop)
	}
	return nil
}

func goals(rs results.Rows) (list []results.Goal) {
	for _, g := range []struct {
		what, group, subject string
		size                 int
		metric, op           string
		bound                float64
	}{
		{"messages of 64 KiB, one queue pair, MiB/s", "bw", splitnic, 65535, "bandwidth", ">=", 0.97},
		{"messages of 64 bytes in batches of 16, one queue pair, a transfer for each, MiB/s", "bw", splitnic + "-no-pack", 64,
			"bandwidth", ">=", 0.90},
		{"the same, packed", "bw", splitnic, 64, "bandwidth", ">=", 0.90},
		{"half a round trip of 64 bytes, polling, least", "lat", splitnic, 64, "min", "<=", 1.10},
		{"the same, typical", "lat", splitnic, 64, "typical", "<=", 1.20},
		{"TCP through the card, host to LAN, one stream, MTU 1500", "net", splitnic, 1500, "tcp", ">=", 0.85},
		{"TCP through the card, LAN to host, one stream, MTU 1500", "net", splitnic, 1500, "tcp-reverse", ">=", 0.85},
		{"TCP from host to host, directly", "direct", direct, 1500, "tcp", ">=", 1.7},
		{"the same, back", "direct", direct, 1500, "tcp-reverse", ">=", 1.7},
		{"round trip from host to host, directly, median", "direct", direct, 1500, "p50", "<=", 0.6},
	} {
		k := results.Key{Group: g.group, Subject: g.subject, Size: g.size, Queues: 1, Metric: g.metric}
		list = append(list, rs.Find(k).ReachRatio(g.what, g.op, g.bound)...)
	}
	list = append(list, spared(rs, "tcp-unit", "processor time of the I/O unit for TCP from host to host")...)
	list = append(list, spared(rs, "tcp-reverse-unit", "the same, back")...)
	for i := range rs {
		r := &rs[i]
		if kind, ok := strings.CutPrefix(r.Group, overload); ok && strings.HasPrefix(r.Subject, splitnic) &&
			strings.HasPrefix(r.Metric, arrived) {
			what := "UDP " + kind + " at " + strings.TrimPrefix(r.Metric, arrived) + " times the best: arrives"
			list = append(list, r.ReachMedian(what, ">=", 0.8)...)
		}
	}
	return list
}

// spared returns the goal for the processor time that frames cost the I/O unit: that of two hosts
// with a direct connection, in relation to that of two hosts without. The processor time without
// frames is subtracted from both.
func spared(rs results.Rows, metric, what string) []results.Goal {
	var cost [2]float64
	for i, subject := range []string{direct, indirect} {
		k := results.Key{Group: "direct", Subject: subject, Size: 1500, Queues: 1, Metric: metric}
		busy, idle := rs.Find(k), rs.With(k, "idle-unit")
		if busy == nil || idle == nil {
			return nil
		}
		cost[i] = max(0, busy.Median-idle.Median)
	}
	if cost[1] == 0 {
		return nil
	}
	g := results.Reach(what, direct, cost[0]/cost[1], "ratio", "<=", 0.05)
	g.RatioTo = indirect
	return []results.Goal{g}
}
