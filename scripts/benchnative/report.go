package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
)

// report writes the figures as JSON to the file and as tables to the terminal.
func (o *options) report(rows []row, notes []string) error {
	if err := writeJSON(o.json, rows); err != nil {
		return err
	}
	return tables(os.Stdout, rows, notes, o.markdown)
}

func writeJSON(file string, rows []row) error {
	text, err := json.MarshalIndent(rows, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// table is one in the making: the first line is the heading.
type table [][]string

// tables writes what was measured, what it cost, and what was to be reached.
func tables(w io.Writer, rows []row, notes []string, markdown bool) error {
	speed := table{{"", "subject", "median", "min", "max", "unit", "beside the relay"}}
	cost := table{{"", "subject", "frames/s", "bytes/frame", "process", "machine", "unit", "allocations", "system calls",
		"of a half", "instructions"}}
	calls := table{{"", "subject", "system calls for each frame"}}
	over := table{{"", "subject", "best", "unit"}}
	for _, f := range factors {
		over[0] = append(over[0], "offered", fmt.Sprintf("arrived at %g×", f))
	}
	wanted := table{{"goal", "subject", "is", "wanted", ""}}
	var seen []row
	for _, r := range rows {
		switch {
		case r.Name == goalName:
			verdict := "missed"
			if *r.Met {
				verdict = "met"
			}
			wanted = append(wanted, []string{r.Metric, r.Subject, number(r.Median) + " " + r.Unit, r.Goal, verdict})
			continue
		case strings.HasPrefix(r.Name, "overload."):
			continue
		case r.Metric == throughput, r.Metric == rate, r.Metric == offered, r.Metric == median50, r.Metric == median99,
			r.Metric == average, r.Name == idle:
			name := r.Name
			switch r.Metric {
			case throughput, rate, average:
			default:
				name += " " + r.Metric
			}
			ratio := ""
			if r.RatioTo != "" {
				ratio = fmt.Sprintf("%.2f", r.Ratio)
			}
			speed = append(speed, []string{name, r.Subject, number(r.Median), number(r.Min), number(r.Max), r.Unit, ratio})
		}
		if r.Metric == cpuMachine {
			seen = append(seen, r)
		}
	}
	for _, r := range rows {
		if !strings.HasPrefix(r.Name, "overload.") || r.Metric != throughput {
			continue
		}
		line := []string{r.Name, r.Subject, spread(&r), r.Unit}
		for _, f := range factors {
			sent, got := find(rows, r.Name, r.Subject, offeredAt(f)), find(rows, r.Name, r.Subject, arrivedAt(f))
			line = append(line, number(sent.Median), spread(got))
		}
		over = append(over, line)
	}
	for _, m := range seen {
		cell := func(metric string) string {
			if r := find(rows, m.Name, m.Subject, metric); r != nil {
				return number(r.Median)
			}
			return ""
		}
		frames := cell(frameRate)
		if frames == "" {
			frames = cell(rate)
		}
		cost = append(cost, []string{m.Name, m.Subject, frames, cell(frameSize), cell(cpuProcess), cell(cpuMachine), m.Unit,
			cell(allocations), cell(allCalls), cell(halfCalls), cell(instructions.name)})
		if list := callsOf(rows, m.Name, m.Subject); list != "" {
			calls = append(calls, []string{m.Name, m.Subject, list})
		}
	}
	fmt.Fprintf(w, "%s\n\n", describe())
	for _, t := range []table{speed, over, cost, calls, wanted} {
		if len(t) == 1 {
			continue
		}
		if err := t.write(w, markdown); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w, "Processor time is that of the subject's process, and of the whole machine with both ends of the traffic. System calls and\n"+
		"instructions are the process's, counted in a run of its own; of a half is a half of them, because both halves are in one process,\n"+
		"without those by which the fabric in memory raises events in place of an adapter.\n"+
		"Allocations: an idle session has some too, which the goal leaves out.")
	for _, n := range notes {
		fmt.Fprintf(w, "\nNote: %s.\n", n)
	}
	return nil
}

// callsOf lists the system calls of a measurement one by one.
func callsOf(rows []row, name, subject string) string {
	var list []string
	for _, r := range rows {
		if call, ok := strings.CutPrefix(r.Metric, callMetric); ok && r.Name == name && r.Subject == subject &&
			r.Median >= 0.0005 {
			list = append(list, fmt.Sprintf("%s %.3f", call, r.Median))
		}
	}
	if r := find(rows, name, subject, fabricEvents); r != nil && len(list) > 0 {
		list = append(list, fmt.Sprintf("%.3f of the writes are %s", r.Median, fabricEvents))
	}
	return strings.Join(list, ", ")
}

// spread writes the median, the least and the greatest.
func spread(r *row) string {
	return fmt.Sprintf("%s (%s–%s)", number(r.Median), number(r.Min), number(r.Max))
}

// number writes three digits that count, and never an exponent.
func number(v float64) string {
	switch a := max(v, -v); {
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	case a >= 1 || a == 0:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.3f", v)
}

// withoutEmpty leaves out the columns that have nothing but a heading.
func (t table) withoutEmpty() table {
	out := make(table, len(t))
	for col := range t[0] {
		if !slices.ContainsFunc(t[1:], func(line []string) bool { return line[col] != "" }) {
			continue
		}
		for i := range t {
			out[i] = append(out[i], t[i][col])
		}
	}
	return out
}

func (t table) write(w io.Writer, markdown bool) error {
	t = t.withoutEmpty()
	if markdown {
		for i, line := range t {
			fmt.Fprintf(w, "| %s |\n", strings.Join(line, " | "))
			if i == 0 {
				fmt.Fprintf(w, "%s|\n", strings.Repeat("|---", len(line)))
			}
		}
		return nil
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, line := range t {
		fmt.Fprintln(tw, strings.Join(line, "\t"))
	}
	return tw.Flush()
}
