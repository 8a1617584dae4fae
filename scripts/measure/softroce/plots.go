package softroce

import (
	"fmt"
	"slices"
	"strings"

	"github.com/splitnic/splitnic/scripts/measure/results"
)

// plots are all pictures that there are figures for.
func plots(rs results.Rows) []results.Plot {
	var list []results.Plot
	for _, q := range []int{1, 4} {
		list = append(list, curves(rs, fmt.Sprintf("bandwidth-%d", q), fmt.Sprintf("Throughput, queue pairs: %d", q), "MiB/s",
			func(r *results.Row) bool { return r.Group == "bw" && r.Metric == "bandwidth" && r.Queues == q }))
	}
	list = append(list,
		curves(rs, "latency", "Half a round trip, typical", "us",
			func(r *results.Row) bool { return r.Group == "lat" && r.Metric == "typical" }),
		bars(rs, 1500), bars(rs, 9000))
	return slices.DeleteFunc(list, func(p results.Plot) bool { return p.Script == "" })
}

// curves draws one line for each subject over the sizes, with the spread, and a
// point for one that was measured with a single size. Points alone are no plot.
func curves(rs results.Rows, name, title, unit string, match func(r *results.Row) bool) results.Plot {
	points := map[string]string{}
	var subjects []string
	drawn := false
	for _, r := range rs {
		if !match(&r) {
			continue
		}
		if points[r.Subject] == "" {
			subjects = append(subjects, r.Subject)
		} else {
			drawn = true
		}
		points[r.Subject] += fmt.Sprintf("%d %g %g %g\n", r.Size, r.Median, r.Min, r.Max)
	}
	if !drawn {
		return results.Plot{}
	}
	var data, lines []string
	for i, s := range subjects {
		data = append(data, fmt.Sprintf("$d%d << EOD\n%sEOD", i, points[s]))
		lines = append(lines, fmt.Sprintf("$d%d using 1:2:3:4 with yerrorlines pointtype 7 pointsize 0.5 title %s", i, quote(s)))
	}
	return results.Plot{Name: name, Script: fmt.Sprintf(`%s
set title %s
set xlabel 'bytes in a message'
set ylabel %s
set logscale x
set xtics (64, 1500, 9000, 65535)
set yrange [0:*]
set grid ytics
set key outside right
plot %s
`, strings.Join(data, "\n"), quote(title), quote(unit), strings.Join(lines, ", "))}
}

// bars draws the networks of an MTU side by side, and what the device can move.
func bars(rs results.Rows, mtu int) results.Plot {
	var subjects, columns []string
	medians := map[[2]string]float64{} // by column and subject
	for _, r := range rs {
		if r.Group != "net" || r.Size != mtu || r.Unit != "Mbit/s" {
			continue
		}
		c := networkColumn(&r)
		medians[[2]string{c, r.Subject}] = r.Median
		if !slices.Contains(subjects, r.Subject) {
			subjects = append(subjects, r.Subject)
		}
		if !slices.Contains(columns, c) {
			columns = append(columns, c)
		}
	}
	if len(subjects) == 0 {
		return results.Plot{}
	}
	var data strings.Builder
	for _, c := range columns {
		data.WriteString(quote(c))
		for _, s := range subjects {
			if v, ok := medians[[2]string{c, s}]; ok {
				fmt.Fprintf(&data, " %g", v)
			} else {
				data.WriteString(" -")
			}
		}
		data.WriteByte('\n')
	}
	var lines []string
	for i, s := range subjects {
		lines = append(lines, fmt.Sprintf("$d using %d:xtic(1) title %s", i+2, quote(s)))
	}
	if raw := rs.Find(rawMbps); raw != nil {
		lines = append(lines, fmt.Sprintf("%g with lines dashtype 2 linecolor '#000000' title 'ib_write_bw'", raw.Median))
	}
	return results.Plot{Name: fmt.Sprintf("networks-%d", mtu), Script: fmt.Sprintf(`$d << EOD
%sEOD
set datafile missing '-'
set title 'Networks with an MTU of %d'
set ylabel 'Mbit/s, logarithmic'
set logscale y
set style data histograms
set style histogram clustered gap 1
set style fill solid 0.8 border -1
set yrange [1:*]
set grid ytics
set key outside right
plot %s
`, data.String(), mtu, strings.Join(lines, ", "))}
}

// quote makes a string of gnuplot's without anything special in it.
func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, ``, `"`, ``).Replace(s) + `"`
}
