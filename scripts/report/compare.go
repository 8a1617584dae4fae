package main

import "strings"

// Subjects that others are compared to.
const (
	writeBW   = "ib_write_bw"
	writeLat  = "ib_write_lat"
	yardstick = "yardstick"
	splitnic  = "splitnic"
	events    = "-events" // the same subject, sleeping instead of polling
	idle      = splitnic + "-idle"
)

// references returns what r's ratio can be to: the highest of them counts. (Of
// latencies there is one.)
func references(r *row) []key {
	of := func(size int, subjects ...string) []key {
		var list []key
		for _, s := range subjects {
			list = append(list, key{r.Name, s, size, r.Queues, r.Metric})
		}
		return list
	}
	ours, sleeps := strings.HasPrefix(r.Subject, splitnic), strings.HasSuffix(r.Subject, events)
	switch {
	case r.Name == "bw" && ours:
		return append(of(r.Size, yardstick, yardstick+events), of(perftestSize(r.Size), writeBW)...)
	case r.Name == "bw" && r.Subject != writeBW:
		return of(perftestSize(r.Size), writeBW)
	case r.Name == "pps":
		return []key{{"bw", yardstick, r.Size, r.Queues, r.Metric}, {"bw", yardstick + events, r.Size, r.Queues, r.Metric},
			{"bw", writeBW, r.Size, r.Queues, r.Metric}}
	case r.Name == "lat" && ours && sleeps:
		return of(r.Size, yardstick+events)
	case r.Name == "lat" && ours:
		return of(r.Size, yardstick)
	case r.Name == "lat" && r.Subject != writeLat:
		return of(perftestSize(r.Size), writeLat)
	case r.Name == "net" && r.Unit == "Mbit/s" && r.Subject != writeBW:
		return []key{rawMbps}
	case r.Name == "rtt" && r.Subject != idle:
		return of(r.Size, idle)
	}
	return nil
}

// rawMbps is what the device can move between its two ends, measured in turn
// with the networks.
var rawMbps = key{"net", writeBW, 65536, 1, "bandwidth"}

// perftestSize is the size of perftest's messages that are compared to those of
// size: immediate data can tell 65535 at most.
func perftestSize(size int) int {
	if size == 65535 {
		return 65536
	}
	return size
}

// compare sets the ratios.
func (rs rows) compare() {
	for i := range rs {
		var best *row
		for _, k := range references(&rs[i]) {
			ref := rs.find(k)
			if ref == nil || ref.Median <= 0 {
				continue
			}
			if best == nil || ref.Median > best.Median {
				best = ref
			}
		}
		if best != nil {
			rs[i].Ratio, rs[i].RatioTo = rs[i].Median/best.Median, best.Subject
		}
	}
}

// goal is a ratio that is to be reached.
type goal struct {
	what  string
	row   key
	least float64 // the ratio has to be at least this, or
	most  float64 // at most this, whichever is not 0
}

var goals = []goal{
	{"messages of 64 KiB, one queue pair, MiB/s", key{"bw", splitnic, 65535, 1, "bandwidth"}, 0.97, 0},
	{"messages of 64 bytes in batches of 16, one queue pair, a transfer for each, MiB/s",
		key{"bw", splitnic + "-no-pack", 64, 1, "bandwidth"}, 0.90, 0},
	{"the same, packed", key{"bw", splitnic, 64, 1, "bandwidth"}, 0.90, 0},
	{"half a round trip of 64 bytes, polling, typical", key{"lat", splitnic, 64, 1, "typical"}, 0, 1.15},
	{"TCP through the card, host to LAN, one stream, MTU 1500", key{"net", splitnic, 1500, 1, "tcp"}, 0.85, 0},
	{"TCP through the card, LAN to host, one stream, MTU 1500", key{"net", splitnic, 1500, 1, "tcp-reverse"}, 0.85, 0},
}

func (g *goal) met(ratio float64) bool {
	if g.most > 0 {
		return ratio <= g.most
	}
	return ratio >= g.least
}
