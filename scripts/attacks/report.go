package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// The states in which the honest host is measured: alone, while another I/O unit
// on the same machine and device is attacked in the same way, and while its own
// is. What the attacker and the kernel take from everybody is in the second
// already.
var states = []string{"none", "elsewhere", "attack"}

// figures are those of a class, in each of the states.
type figures map[string]map[string][]float64 // by metric, by state

// row is the outcome for a class of attacks: medians, and how much worse than
// without an attack the honest host fares, in per cent.
type row struct {
	Class   string             `json:"class"`
	Metrics map[string]outcome `json:"metrics"`
}

// outcome is what became of one metric. Slower is above 0 where it got worse.
type outcome struct {
	None      float64 `json:"none"`
	Elsewhere float64 `json:"elsewhere"`
	Attack    float64 `json:"attack"`
	// Slower, in per cent, than without any attack, and than while another I/O
	// unit is attacked.
	SlowerThanNone      float64 `json:"slower_than_none_percent"`
	SlowerThanElsewhere float64 `json:"slower_than_elsewhere_percent"`
}

// The metrics: throughput, where more is better, and times, where less is.
const (
	throughput = "tcp_mbps"
	latency    = "ping_us"
	tail       = "ping_p99_us" // where it is measured
)

// costs are metrics of the attack itself: the part of one processor that the
// attacker takes and that the attacked I/O unit does (without an attack, the
// honest host's), and how often the attacker has done what it does in a second.
var costs = []string{"attacker_cpu", "unit_cpu", "rate"}

// parse reads lines of "class state metric value".
func parse(r io.Reader) (classes []string, all map[string]figures, err error) {
	all = make(map[string]figures)
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		f := strings.Fields(lines.Text())
		if len(f) != 4 || !slices.Contains(states, f[1]) {
			return nil, nil, fmt.Errorf("line %d: %q is not a class, a state, a metric and a value", n, lines.Text())
		}
		v, err := strconv.ParseFloat(f[3], 64)
		if err != nil {
			return nil, nil, fmt.Errorf("line %d: %w", n, err)
		}
		if all[f[0]] == nil {
			all[f[0]] = make(figures)
			classes = append(classes, f[0])
		}
		if all[f[0]][f[2]] == nil {
			all[f[0]][f[2]] = make(map[string][]float64)
		}
		all[f[0]][f[2]][f[1]] = append(all[f[0]][f[2]][f[1]], v)
	}
	return classes, all, lines.Err()
}

// median is the middle one, or the mean of the two in the middle; 0 of none.
func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Sorted(slices.Values(v))
	n := len(v)
	return (v[(n-1)/2] + v[n/2]) / 2
}

// slower is by how many per cent a figure got worse. The median of the rounds'
// own ratios is taken: a round's figures are of neighbouring seconds, in which
// the machine is as busy with other things.
func slower(metric string, from, to []float64) float64 {
	var ratios []float64
	for i := range min(len(from), len(to)) {
		if from[i] <= 0 || to[i] <= 0 {
			continue
		}
		if metric == throughput {
			ratios = append(ratios, 100*(1-to[i]/from[i]))
		} else {
			ratios = append(ratios, 100*(to[i]/from[i]-1))
		}
	}
	return median(ratios)
}

func rows(classes []string, all map[string]figures) []row {
	var rows []row
	for _, c := range classes {
		r := row{Class: c, Metrics: make(map[string]outcome)}
		for metric, by := range all[c] {
			o := outcome{None: median(by["none"]), Elsewhere: median(by["elsewhere"]), Attack: median(by["attack"])}
			if metric == throughput || metric == latency || metric == tail {
				o.SlowerThanNone = slower(metric, by["none"], by["attack"])
				o.SlowerThanElsewhere = slower(metric, by["elsewhere"], by["attack"])
			}
			r.Metrics[metric] = o
		}
		rows = append(rows, r)
	}
	return rows
}

// report prints the table of what is in the file results, and writes it to the
// file document.
func report(results, document string, w io.Writer) error {
	f, err := os.Open(results)
	if err != nil {
		return err
	}
	defer f.Close()
	classes, all, err := parse(f)
	if err != nil {
		return fmt.Errorf("%s: %w", results, err)
	}
	table := rows(classes, all)
	print(w, table)
	b, err := json.MarshalIndent(map[string]any{"classes": table}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(document, append(b, '\n'), 0o644)
}

func print(w io.Writer, table []row) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "\tTCP Mbit/s\t\t\tslower than %\t\tping us\t\t\tslower than %\t\tping p99 us\t\t\tslower than %\tprocessors\t\t\t\t")
	fmt.Fprintln(tw, "class\tnone\telsewhere\tattack\tnone\telsewhere\tnone\telsewhere\tattack\tnone\telsewhere\tnone\telsewhere\tattack\telsewhere\tattacker\tI/O unit\tunit alone\tper second\t")
	for _, r := range table {
		t, p := r.Metrics[throughput], r.Metrics[latency]
		fmt.Fprintf(tw, "%s\t%.1f\t%.1f\t%.1f\t%+.0f\t%+.0f\t%.0f\t%.0f\t%.0f\t%+.0f\t%+.0f\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", r.Class,
			t.None, t.Elsewhere, t.Attack, t.SlowerThanNone, t.SlowerThanElsewhere,
			p.None, p.Elsewhere, p.Attack, p.SlowerThanNone, p.SlowerThanElsewhere,
			r.cost("%.0f", tail, "none"), r.cost("%.0f", tail, "elsewhere"), r.cost("%.0f", tail, "attack"), r.worse(tail),
			r.cost("%.2f", costs[0], "attack"), r.cost("%.2f", costs[1], "attack"), r.cost("%.2f", costs[1], "none"),
			r.cost("%.0f", costs[2], "attack"))
	}
	tw.Flush()
}

// worse says by how much a metric is slower than while another I/O unit is attacked,
// or "-" where that was not measured.
func (r *row) worse(metric string) string {
	if o, ok := r.Metrics[metric]; ok {
		return fmt.Sprintf("%+.0f", o.SlowerThanElsewhere)
	}
	return "-"
}

// cost is a figure for the table in one of the states, or "-" where that was not
// measured.
func (r *row) cost(format, metric, state string) string {
	o, ok := r.Metrics[metric]
	if !ok {
		return "-"
	}
	switch state {
	case "none":
		return fmt.Sprintf(format, o.None)
	case "elsewhere":
		return fmt.Sprintf(format, o.Elsewhere)
	default:
		return fmt.Sprintf(format, o.Attack)
	}
}
