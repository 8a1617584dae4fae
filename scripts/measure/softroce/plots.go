package softroce

import (
	"fmt"
	"slices"

	"github.com/splitnic/splitnic/scripts/measure/results"
)

// percentiles has the metrics of the percentiles of a round trip, with their names in plots.
var percentiles = [][2]string{{"min", "least"}, {"typical", "typical"}, {"p99", "99 %"}, {"p99.9", "99.9 %"}}

// plots returns all plots for which there are figures.
func plots(rs results.Rows) (list []results.Plot) {
	curves := func(p results.Plot, of func(r *results.Row) bool) {
		p.X, p.LogX = "bytes in a message", true
		p, drawn := p.Curves(rs, func(r *results.Row) (string, float64) {
			if !of(r) {
				return "", 0
			}
			return r.Subject, float64(r.Size)
		})
		if drawn {
			list = append(list, p)
		}
	}
	for _, q := range []int{1, 4} {
		title := fmt.Sprintf("Throughput, queue pairs: %d", q)
		curves(results.Plot{Name: fmt.Sprintf("bandwidth-%d", q), Title: title, Y: "MiB/s"},
			func(r *results.Row) bool { return r.Group == "bw" && r.Metric == "bandwidth" && r.Queues == q })
	}
	curves(results.Plot{Name: "latency", Title: "Half a round trip, typical", Y: "µs"},
		func(r *results.Row) bool { return r.Group == "lat" && r.Metric == "typical" })
	for _, mtu := range []int{1500, 9000} {
		if p, drawn := networks(rs, mtu); drawn {
			list = append(list, p)
		}
	}
	if p, drawn := latencies(rs); drawn {
		list = append(list, p)
	}
	return list
}

// bars adds the figure of a row to the series of its subject in a column.
func bars(p *results.Plot, r *results.Row, column string) {
	c := slices.Index(p.Columns, column)
	if c < 0 {
		c = len(p.Columns)
		p.Columns = append(p.Columns, column)
	}
	s := slices.IndexFunc(p.Series, func(s results.Series) bool { return s.Name == r.Subject })
	if s < 0 {
		s = len(p.Series)
		p.Series = append(p.Series, results.Series{Name: r.Subject})
	}
	p.Series[s].Points = append(p.Series[s].Points, results.Point{X: float64(c), Y: r.Median, Min: r.Min, Max: r.Max})
}

// networks returns a plot of the networks with this MTU side by side, and of what the device can
// move.
func networks(rs results.Rows, mtu int) (results.Plot, bool) {
	p := results.Plot{
		Name: fmt.Sprintf("networks-%d", mtu), Title: fmt.Sprintf("Networks with an MTU of %d", mtu),
		X: "traffic", Y: "Mbit/s, logarithmic", LogY: true,
	}
	for i := range rs {
		if r := &rs[i]; r.Group == "net" && r.Size == mtu && r.Unit == "Mbit/s" && r.Min > 0 {
			bars(&p, r, networkColumn(r))
		}
	}
	if raw := rs.Find(rawMbps); raw != nil {
		p.Level = &results.Level{Name: writeBW, Y: raw.Median}
	}
	return p, len(p.Series) > 0
}

// latencies returns a plot of the percentiles of half a round trip of 64 bytes.
func latencies(rs results.Rows) (results.Plot, bool) {
	p := results.Plot{
		Name: "percentiles", Title: "Half a round trip of 64 bytes", X: "percentile", Y: "µs, logarithmic", LogY: true,
	}
	for _, m := range percentiles {
		for i := range rs {
			if r := &rs[i]; r.Group == "lat" && r.Size == 64 && r.Metric == m[0] && r.Min > 0 {
				bars(&p, r, m[1])
			}
		}
	}
	return p, len(p.Series) > 0
}
