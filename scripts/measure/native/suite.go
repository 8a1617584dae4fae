package native

import (
	"fmt"
	"slices"
	"strings"

	"github.com/splitnic/splitnic/scripts/measure/results"
)

// Suite returns the suite of `make bench-native`.
func Suite() *results.Suite {
	return &results.Suite{
		Name: "bench-native", Rounds: 5, References: references, Goals: goals, Tables: tables,
		Remark: "Processor time is that of the subject's process, and of the whole machine with both ends of the traffic. " +
			"System calls and\ninstructions are the process's, counted in a run of its own; of an endpoint is half of them, " +
			"because both endpoints are in one process,\nwithout those by which the fabric in memory raises events in place of " +
			"an adapter.\nAllocations: an idle session has some too, which the goal leaves out.",
	}
}

// compared has the metrics of which a ratio is meaningful.
var compared = []string{throughput, rate, median50, median99, average, cpuProcess, cpuMachine}

// references returns the keys of the rows to which r is compared. They are those of the relay
// with the same kind of port for splitnic, and of the kernel's device for a vhost-user port.
func references(r *results.Row) []results.Key {
	if r.Subject == portSubject {
		k := r.Key
		switch {
		case strings.HasPrefix(r.Group, guestPrefix):
			k.Subject = bridgeSubject
		case r.Group == vhostCard:
			k.Subject = vethSubject
		default:
			k.Subject = tapSubject
		}
		return []results.Key{k}
	}
	s, ok := parseSubject(r.Subject)
	if !ok || s.what != splitnic || !slices.Contains(compared, r.Metric) {
		return nil
	}
	k := r.Key
	k.Subject = s.yardstick().String()
	return []results.Key{k}
}

// of finds rows by group, subject and metric.
type of results.Rows

func (rs of) find(group, subject, metric string) *results.Row {
	i := slices.IndexFunc(rs, func(r results.Row) bool {
		return r.Group == group && r.Subject == subject && r.Metric == metric
	})
	if i < 0 {
		return nil
	}
	return &rs[i]
}

// goals returns the goals of the project that were measured.
func goals(all results.Rows) (list []results.Goal) {
	rs := of(all)
	compare := func(what string, a, b *results.Row, op string, bound float64) {
		if a != nil && b != nil && b.Median > 0 {
			g := results.Reach(what, a.Subject, a.Median/b.Median, "ratio", op, bound)
			g.RatioTo = b.Subject
			list = append(list, g)
		}
	}
	ratio := func(what string, a, b *results.Row, bound float64) { compare(what, a, b, ">=", bound) }
	reach := func(what string, r *results.Row, op string, bound float64) {
		list = append(list, r.ReachMedian(what, op, bound)...)
	}
	ratio("frames out of a vhost-user port beside a TAP device", rs.find(vhostOut, portSubject, rate),
		rs.find(vhostOut, tapSubject, rate), 10)
	ratio("frames into a vhost-user port beside a TAP device", rs.find(vhostIn, portSubject, rate),
		rs.find(vhostIn, tapSubject, rate), 20)
	ratio("frames into a vhost-user port beside a TAP device that a program reads", rs.find(vhostIn, portSubject, rate),
		rs.find(vhostIn, readSubject, rate), 20)
	reach("frames through the card with vhost-user at both ends", rs.find(vhostCard, portSubject, rate), ">=", 3000)
	for _, name := range []string{guestOut, guestIn} {
		ratio(name+" of a virtual machine", rs.find(name, portSubject, throughput),
			rs.find(name, bridgeSubject, throughput), 1.3)
	}
	for _, sub := range subjects() {
		if sub.what != splitnic || sub.plain {
			continue
		}
		s, y := sub.String(), sub.yardstick().String()
		bare := subject{what: splitnic, port: sub.port, plain: true}.String()
		for _, way := range []string{"tx", "rx"} {
			tcp, udp := "tcp."+way, "udp."+way
			ratio(tcp+" beside the relay", rs.find(tcp, s, throughput), rs.find(tcp, y, throughput), 0.8)
			ratio(tcp+" beside none of the offloads", rs.find(tcp, s, throughput), rs.find(tcp, bare, throughput), 5)
			ratio(udp+" beside the relay", rs.find(udp, s, rate), rs.find(udp, y, rate), 0.6)
			ratio(udp+" of 64 flows beside one", rs.find(udp+".64flows", s, rate), rs.find(udp, s, rate), 0.9)
		}
		compare("ping beside the relay", rs.find(pingName, s, average), rs.find(pingName, y, average), "<=", 0.9)
		for _, name := range []string{"tcp.tx", "tcp.rx", "udp.tx", "udp.rx"} {
			if n, ok := rs.allocations(name, s); ok {
				list = append(list, results.Reach(name+" allocations", s, n, "/frame", "<", 0.01))
			}
			bound := 1.0
			if strings.HasPrefix(name, "udp") {
				bound = 0.5
			}
			reach(name+" system calls of an endpoint", rs.find(name, s, endpointCalls), "<=", bound)
		}
		for _, d := range overloads {
			for _, way := range []string{"tx", "rx"} {
				for _, f := range factors {
					name := overloadPrefix + way + "." + d.name
					reach(fmt.Sprintf("%s at %g times the best", name, f), rs.find(name, s, arrivedAt(f)), ">=", 0.8)
				}
			}
		}
		reach("idle use of a processor, each endpoint", rs.find(idle, s, idleEndpoint), "<", 0.5)
	}
	return list
}

// allocations returns the number of allocations per frame, without those of a session that has
// no frames.
func (rs of) allocations(name, subject string) (n float64, ok bool) {
	frames := rs.find(name, subject, frameRate)
	if frames == nil {
		frames = rs.find(name, subject, rate)
	}
	busy, calm := rs.find(name, subject, allocations), rs.find(idle, subject, allocations)
	if frames == nil || busy == nil || calm == nil || frames.Median == 0 {
		return 0, false
	}
	return max(busy.Median-calm.Median/frames.Median, 0), true
}

// overloadPrefix begins the names of measurements that offer more than can be carried.
const overloadPrefix = "overload."

// speeds has the metrics in the table of speeds. costs has the metrics in the table of costs,
// with their columns.
var (
	speeds = []string{throughput, rate, offered, median50, median99, average, idleAll, idleEndpoint}
	costs  = map[string]string{
		rate: "frames/s", frameRate: "frames/s", frameSize: "bytes/frame", allocations: "allocations",
		allCalls: "system calls", endpointCalls: "of an endpoint", instructions.name: "instructions",
	}
)

// costColumn returns the column of a row in the table of costs, or "" if the table does not
// show the row.
func costColumn(r *results.Row) string {
	switch {
	case r.Group == idle || strings.HasPrefix(r.Group, overloadPrefix):
		return ""
	case r.Metric == cpuProcess:
		return "process, " + r.Unit
	case r.Metric == cpuMachine:
		return "machine, " + r.Unit
	}
	return costs[r.Metric]
}

// tables returns the tables of speeds and costs.
func tables(rs results.Rows) []results.Table {
	begin := func(r *results.Row) []string { return []string{r.Group, r.Subject} }
	list := []results.Matrix{
		{
			Title: "Speed, and how that compares with the relay", Head: []string{"", "subject", "unit"},
			Line: func(r *results.Row) []string {
				switch r.Metric {
				case throughput, rate, average:
					return []string{r.Group, r.Subject, r.Unit}
				}
				return []string{r.Group + " " + r.Metric, r.Subject, r.Unit}
			},
			Column: func(r *results.Row) string {
				if strings.HasPrefix(r.Group, overloadPrefix) || !slices.Contains(speeds, r.Metric) {
					return ""
				}
				return "median (least–greatest)"
			},
			Ratio: func(*results.Row) bool { return true },
		},
		{
			Title: "More UDP than can be carried: the best, Gbit/s, and of that what was offered and what arrived",
			Head:  []string{"", "subject"}, Line: begin,
			Column: func(r *results.Row) string {
				switch {
				case !strings.HasPrefix(r.Group, overloadPrefix):
					return ""
				case r.Metric == throughput:
					return "best"
				}
				return r.Metric
			},
		},
		{Title: "Cost: processor time of process and machine, and what a frame takes", Head: []string{"", "subject"}, Line: begin, Column: costColumn, Median: true},
		{
			Title: "System calls for each frame", Head: []string{"", "subject"}, Line: begin, Median: true,
			Column: func(r *results.Row) string {
				call, ok := strings.CutPrefix(r.Metric, callMetric)
				switch {
				case ok && r.Median >= 0.0005:
					return call
				case r.Metric == fabricEvents:
					return "of them " + fabricEvents
				}
				return ""
			},
		},
	}
	var tables []results.Table
	for i := range list {
		tables = append(tables, list[i].Table(rs))
	}
	return tables
}
