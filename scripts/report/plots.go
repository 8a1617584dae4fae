package main

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"
)

// plot is a picture that gnuplot draws.
type plot struct {
	name   string
	script string // without the terminal and the output
}

func (p *plot) draw(path string) error {
	c := exec.Command("gnuplot")
	c.Stdin = strings.NewReader(fmt.Sprintf("set terminal svg noenhanced size 960,540 font 'sans,13' background '#ffffff'\nset output '%s'\n%s",
		strings.ReplaceAll(path, "'", "''"), p.script))
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("gnuplot draws %s: %w: %s; is gnuplot-nox installed?", path, err, bytes.TrimSpace(out))
	}
	return nil
}

// plots are all pictures there are figures for.
func (rs rows) plots() []plot {
	var list []plot
	for _, q := range []int{1, 4} {
		list = append(list, rs.curves(fmt.Sprintf("bandwidth-%d", q), fmt.Sprintf("Throughput, queue pairs: %d", q), "MiB/s",
			func(r *row) bool { return r.Name == "bw" && r.Metric == "bandwidth" && r.Queues == q }))
	}
	list = append(list,
		rs.curves("latency", "Half a round trip, typical", "us",
			func(r *row) bool { return r.Name == "lat" && r.Metric == "typical" }),
		rs.bars(1500), rs.bars(9000))
	var full []plot
	for _, p := range list {
		if p.script != "" {
			full = append(full, p)
		}
	}
	return full
}

// curves draws one line for each subject over the sizes, with the spread, and a
// point for one that was measured with a single size. Points alone are no plot.
func (rs rows) curves(name, title, unit string, match func(r *row) bool) plot {
	var data, lines []string
	drawn := false
	for i, subject := range rs.subjects(match) {
		var b strings.Builder
		n := 0
		for _, r := range rs {
			if match(&r) && r.Subject == subject {
				fmt.Fprintf(&b, "%d %g %g %g\n", r.Size, r.Median, r.Min, r.Max)
				n++
			}
		}
		drawn = drawn || n > 1
		data = append(data, fmt.Sprintf("$d%d << EOD\n%sEOD", i, b.String()))
		lines = append(lines, fmt.Sprintf("$d%d using 1:2:3:4 with yerrorlines pointtype 7 pointsize 0.5 title %s", i,
			quote(subject)))
	}
	if !drawn {
		return plot{}
	}
	return plot{name, fmt.Sprintf(`%s
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
func (rs rows) bars(mtu int) plot {
	subjects := rs.subjects(func(r *row) bool { return isNetwork(r) && r.Size == mtu })
	if len(subjects) == 0 {
		return plot{}
	}
	var data strings.Builder
	for _, c := range networkColumns {
		line, measured := quote(c.title), false
		for _, s := range subjects {
			if r := rs.find(key{"net", s, mtu, c.queues, c.metric}); r != nil && r.Unit == "Mbit/s" {
				line += fmt.Sprintf(" %g", r.Median)
				measured = true
			} else {
				line += " -"
			}
		}
		if measured {
			fmt.Fprintln(&data, line)
		}
	}
	var lines []string
	for i, s := range subjects {
		lines = append(lines, fmt.Sprintf("$d using %d:xtic(1) title %s", i+2, quote(s)))
	}
	if raw := rs.find(rawMbps); raw != nil {
		lines = append(lines, fmt.Sprintf("%g with lines dashtype 2 linecolor '#000000' title 'ib_write_bw'", raw.Median))
	}
	return plot{fmt.Sprintf("networks-%d", mtu), fmt.Sprintf(`$d << EOD
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
