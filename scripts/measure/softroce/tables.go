package softroce

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/splitnic/splitnic/scripts/measure/results"
)

// Prefixes of groups (overload and tunnel) and of metrics (arrived).
const (
	overload = "overload-"
	tunnel   = "tunnel-"
	arrived  = "arrived-"
)

// tables returns all tables. A table without figures has only a head.
func tables(rs results.Rows) []results.Table {
	var list []results.Table
	add := func(m results.Matrix) { list = append(list, m.Table(rs)) }
	for _, t := range []struct{ metric, title string }{
		{"bandwidth", "Throughput, MiB/s"}, {"rate", "Messages per second"},
	} {
		for _, queues := range numbers(rs, "bw", func(r *results.Row) int { return r.Queues }) {
			add(results.Matrix{
				Title: fmt.Sprintf("%s, queue pairs: %d", t.title, queues), Head: []string{"subject"},
				Line: of("bw", func(r *results.Row) []string { return []string{r.Subject} }),
				Column: func(r *results.Row) string {
					if r.Metric != t.metric || r.Queues != queues {
						return ""
					}
					return strconv.Itoa(ourSize(r.Size)) + " bytes"
				},
				Ratio: always,
			})
		}
	}
	add(results.Matrix{
		Title: "Small frames in a second, and what they take", Head: []string{"subject", "bytes", "queues"},
		Line: of("pps", func(r *results.Row) []string {
			return []string{r.Subject, strconv.Itoa(r.Size), strconv.Itoa(r.Queues)}
		}),
		Column: func(r *results.Row) string {
			if r.Metric == "rate" {
				return "frames"
			}
			return r.Metric
		},
		Ratio: always,
	})
	add(results.Matrix{
		Title: "Half a round trip, us", Head: []string{"bytes", "subject"},
		Line:   of("lat", func(r *results.Row) []string { return []string{strconv.Itoa(ourSize(r.Size)), r.Subject} }),
		Column: metric, Ratio: func(r *results.Row) bool { return r.Metric == "typical" },
	})
	for _, mtu := range numbers(rs, "net", func(r *results.Row) int { return r.Size }) {
		if mtu == rawMbps.Size {
			continue
		}
		title := fmt.Sprintf("Networks with an MTU of %d, Mbit/s", mtu)
		if raw := rs.Find(rawMbps); raw != nil {
			title += "; ib_write_bw: " + results.Figure(raw.Median)
		}
		add(results.Matrix{
			Title: title, Head: []string{"subject"},
			Line: of("net", func(r *results.Row) []string {
				if r.Size != mtu {
					return nil
				}
				return []string{r.Subject}
			}),
			Column: networkColumn,
			Ratio:  func(r *results.Row) bool { return r.Metric == "tcp" && r.Queues == 1 },
		})
	}
	add(results.Matrix{
		Title: "More UDP than can be carried: the best, Mbit/s, and of that what was offered and what arrived",
		Head:  []string{"datagrams", "subject"},
		Line:  prefixed(overload),
		Column: func(r *results.Row) string {
			return strings.Replace(r.Metric, "-", " at ", 1)
		},
	})
	add(results.Matrix{
		Title: "TCP through tunnels, one stream, Mbit/s", Head: []string{"tunnel", "MTU", "direction"},
		Line: func(r *results.Row) []string {
			kind, ok := strings.CutPrefix(r.Group, tunnel)
			if !ok {
				return nil
			}
			way := "to the LAN"
			if r.Metric == "tcp-reverse" {
				way = "from the LAN"
			}
			return []string{kind, strconv.Itoa(r.Size), way}
		},
		Column: func(r *results.Row) string { return r.Subject }, Ratio: always,
	})
	add(results.Matrix{
		Title: "From host to host, directly and through their I/O unit", Head: []string{"what", "unit"},
		Line: of("direct", func(r *results.Row) []string {
			return []string{directRows[r.Metric], r.Unit}
		}),
		Column: func(r *results.Row) string { return r.Subject }, Ratio: always,
	})
	add(results.Matrix{
		Title: "Round trips of marked packets through the card, us", Head: []string{"subject", "MTU"},
		Line:   of("rtt", func(r *results.Row) []string { return []string{r.Subject, strconv.Itoa(r.Size)} }),
		Column: metric, Ratio: always,
	})
	add(results.Matrix{
		Title: "The devices' counters, times in a round: receiver not ready, sent again", Head: []string{"subject"},
		Line:   of("counters", func(r *results.Row) []string { return []string{r.Subject} }),
		Column: metric,
	})
	return list
}

// directRows has the names of the lines of the group direct, by metric.
var directRows = map[string]string{
	"tcp": "TCP, one stream", "tcp-unit": "processor time of the I/O unit meanwhile",
	"tcp-reverse": "TCP back", "tcp-reverse-unit": "processor time of the I/O unit meanwhile, back",
	"idle-unit": "processor time of the I/O unit without frames", "udp": "UDP, full frames",
	"p50": "round trip, median", "p99": "round trip, 99 %",
	"set-up": "from the offer to the first frame", "frames-before": "frames through the I/O unit before",
}

func always(*results.Row) bool { return true }

func metric(r *results.Row) string { return r.Metric }

// of returns a Matrix.Line that calls begin for the rows of a group, and leaves out other rows.
func of(group string, begin func(r *results.Row) []string) func(r *results.Row) []string {
	return func(r *results.Row) []string {
		if r.Group != group {
			return nil
		}
		return begin(r)
	}
}

// prefixed returns a Matrix.Line for the rows of all groups with the prefix. A line begins with
// the group without the prefix, and the subject.
func prefixed(prefix string) func(r *results.Row) []string {
	return func(r *results.Row) []string {
		kind, ok := strings.CutPrefix(r.Group, prefix)
		if !ok {
			return nil
		}
		return []string{kind, r.Subject}
	}
}

// ourSize is the inverse of perftestSize.
func ourSize(size int) int {
	if size == perftestSize(65535) {
		return 65535
	}
	return size
}

// networkColumn returns the column of a figure of a network.
func networkColumn(r *results.Row) string {
	switch r.Metric {
	case "tcp":
		return fmt.Sprintf("TCP %d", r.Queues)
	case "tcp-reverse":
		return fmt.Sprintf("TCP %d back", r.Queues)
	case "udp":
		return "UDP, full frames"
	case "udp-frames":
		return "UDP, 64 bytes, frames/s"
	}
	return "ping, us"
}

// numbers returns the different values of a field of a group's rows, sorted.
func numbers(rs results.Rows, group string, field func(r *results.Row) int) []int {
	var list []int
	for i := range rs {
		if n := field(&rs[i]); rs[i].Group == group && !slices.Contains(list, n) {
			list = append(list, n)
		}
	}
	slices.Sort(list)
	return list
}
