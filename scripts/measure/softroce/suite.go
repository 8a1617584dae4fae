// Package softroce describes the figures of programs that run on Soft-RoCE: of the scripts beside it,
// which compare the messaging layer and the whole card with the RDMA device and other networks, and of
// BenchmarkRDMAFailover and TestRDMARestart of test/e2e.
package softroce

import (
	"strings"

	"github.com/splitnic/splitnic/scripts/measure/results"
)

// Names of subjects, for comparisons and goals.
const (
	writeBW   = "ib_write_bw"
	writeLat  = "ib_write_lat"
	yardstick = "yardstick"
	splitnic  = "splitnic"
	events    = "-events" // suffix of a subject that sleeps instead of polling
	idle      = splitnic + "-idle"
	direct    = splitnic + "-direct" // two hosts with a direct connection
	indirect  = splitnic + "-unit"   // two hosts through their I/O unit
)

// rawMbps is the key of what the device can move between its two ends, measured in turn with the
// networks.
var rawMbps = results.Key{Group: "net", Subject: writeBW, Size: 65536, Queues: 1, Metric: "bandwidth"}

// perftestSize returns the size of the messages of perftest to which messages of size are
// compared: immediate data can express 65535 at most.
func perftestSize(size int) int {
	if size == 65535 {
		return 65536
	}
	return size
}

// Suite returns the suite of `make bench`.
func Suite() *results.Suite {
	return &results.Suite{Name: "bench", Rounds: 5, References: references, Aims: []results.Aim{
		ratio("messages of 64 KiB", "bw", splitnic, 65535, "bandwidth", ">=", 0.97),
		ratio("messages of 64 bytes in batches of 16, a transfer for each", "bw", splitnic+"-no-pack", 64, "bandwidth", ">=",
			0.9),
		ratio("messages of 64 bytes, packed", "bw", splitnic, 64, "bandwidth", ">=", 0.9),
		ratio("half a round trip of 64 bytes, polling, least", "lat", splitnic, 64, "min", "<=", 1.1),
		ratio("half a round trip of 64 bytes, polling, typical", "lat", splitnic, 64, "typical", "<=", 1.2),
		ratio("TCP through the card, one stream", "net", splitnic, 1500, "tcp*", ">=", 0.85),
		ratio("TCP from host to host, directly", "direct", direct, 1500, "tcp", ">=", 1.7),
		ratio("TCP from host to host, directly, back", "direct", direct, 1500, "tcp-reverse", ">=", 1.7),
		ratio("round trip from host to host, directly", "direct", direct, 1500, "p50", "<=", 0.6),
		ratio("processor time of the I/O unit for TCP from host to host", "direct", direct, 1500, "tcp*-unit", "<=", 0.05),
		{What: "receiver not ready", Group: "counters", Subject: splitnic + "*", Metric: "rnr", Op: "<=", Bound: 0},
	}}
}

func ratio(what, group, subject string, size int, metric, op string, bound float64) results.Aim {
	return results.Aim{What: what, Group: group, Subject: subject, Size: size, Queues: 1, Metric: metric,
		Ratio: true, Op: op, Bound: bound}
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
	}
	return nil
}

// Failover returns the suite of `make bench-failover`.
func Failover() *results.Suite {
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
