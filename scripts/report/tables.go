package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
)

// sheet is a table of strings; the first line is its head.
type sheet struct {
	title string
	lines [][]string
}

func (t *sheet) add(cells ...string) { t.lines = append(t.lines, cells) }

func (t *sheet) text(w io.Writer) error {
	fmt.Fprintf(w, "\n%s\n", t.title)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, l := range t.lines {
		fmt.Fprintf(tw, "  %s\n", strings.Join(l, "\t"))
	}
	return tw.Flush()
}

func (t *sheet) markdown(w io.Writer) error {
	fmt.Fprintf(w, "**%s**\n\n", t.title)
	for i, l := range t.lines {
		fmt.Fprintf(w, "| %s |\n", strings.Join(l, " | "))
		if i == 0 {
			fmt.Fprintf(w, "|%s\n", strings.Repeat("---|", len(l)))
		}
	}
	_, err := fmt.Fprintln(w)
	return err
}

// sheets are all tables there are figures for.
func (rs rows) sheets() []sheet {
	list := []sheet{rs.goals()}
	for _, m := range []struct{ metric, title string }{{"bandwidth", "Throughput, MiB/s"},
		{"rate", "Messages per second"}} {
		for _, q := range rs.numbers(func(r *row) int { return r.Queues }, func(r *row) bool { return r.Name == "bw" }) {
			list = append(list, rs.throughput(m.metric, q, fmt.Sprintf("%s, queue pairs: %d", m.title, q)))
		}
	}
	list = append(list, rs.frames(), rs.latency())
	for _, mtu := range rs.numbers(func(r *row) int { return r.Size }, isNetwork) {
		list = append(list, rs.networks(mtu))
	}
	list = append(list, rs.overload(), rs.roundTrips(), rs.counters())
	var full []sheet
	for _, t := range list {
		if len(t.lines) > 1 {
			full = append(full, t)
		}
	}
	return full
}

func (rs rows) goals() sheet {
	t := sheet{title: "Goals: ratio to the device, in the same run"}
	t.add("what", "goal", "reached", "compared to", "")
	for _, g := range goals {
		r := rs.find(g.row)
		if r == nil || r.RatioTo == "" {
			continue
		}
		bound, verdict := fmt.Sprintf("at least %.2f", g.least), "not met"
		if g.most > 0 {
			bound = fmt.Sprintf("at most %.2f", g.most)
		}
		if g.met(r.Ratio) {
			verdict = "met"
		}
		t.add(g.what, bound, fmt.Sprintf("%.2f", r.Ratio), r.RatioTo, verdict)
	}
	return t
}

// throughput has a line for each subject and a column for each size.
func (rs rows) throughput(metric string, queues int, title string) sheet {
	t := sheet{title: title}
	match := func(r *row) bool { return r.Name == "bw" && r.Metric == metric && r.Queues == queues }
	ourSize := func(r *row) int {
		if r.Size == perftestSize(65535) {
			return 65535
		}
		return r.Size
	}
	sizes := rs.numbers(ourSize, match)
	head := []string{"subject"}
	for _, s := range sizes {
		head = append(head, fmt.Sprintf("%d bytes", s), "ratio")
	}
	t.add(head...)
	for _, subject := range rs.subjects(match) {
		line := []string{subject}
		for _, s := range sizes {
			r := rs.find(key{"bw", subject, s, queues, metric})
			if r == nil {
				r = rs.find(key{"bw", subject, perftestSize(s), queues, metric})
			}
			line = append(line, cell(r), ratio(r))
		}
		t.add(line...)
	}
	return t
}

// frames has a line for each number of queues.
func (rs rows) frames() sheet {
	t := sheet{title: "Small frames in a second, and what they take"}
	t.add("subject", "bytes", "queues", "frames", "ratio", "transfers", "doorbells")
	for _, r := range rs {
		if r.Name == "pps" && r.Metric == "rate" {
			of := func(metric string) string { return cell(rs.find(key{"pps", r.Subject, r.Size, r.Queues, metric})) }
			t.add(r.Subject, strconv.Itoa(r.Size), strconv.Itoa(r.Queues), cell(&r), ratio(&r), of("transfers"), of("doorbells"))
		}
	}
	return t
}

// latency has a line for each size and subject.
func (rs rows) latency() sheet {
	t := sheet{title: "Half a round trip, us"}
	metrics := []string{"min", "typical", "p99", "p99.9"}
	t.add("bytes", "subject", "min", "typical", "ratio", "p99", "p99.9")
	match := func(r *row) bool { return r.Name == "lat" }
	for _, s := range rs.numbers(func(r *row) int { return r.Size }, match) {
		for _, subject := range rs.subjects(match) {
			line := []string{strconv.Itoa(s), subject}
			found := false
			for _, m := range metrics {
				r := rs.find(key{"lat", subject, s, 1, m})
				found = found || r != nil
				line = append(line, cell(r))
				if m == "typical" {
					line = append(line, ratio(r))
				}
			}
			if found {
				t.add(line...)
			}
		}
	}
	return t
}

func isNetwork(r *row) bool { return r.Name == "net" && r.key() != rawMbps }

// networkColumns are what is measured of a network.
var networkColumns = []struct {
	title  string
	queues int
	metric string
}{
	{"TCP 1", 1, "tcp"},
	{"TCP 4", 4, "tcp"},
	{"TCP 1 back", 1, "tcp-reverse"},
	{"TCP 4 back", 4, "tcp-reverse"},
	{"UDP, full frames", 1, "udp"},
	{"UDP, 64 bytes, frames/s", 1, "udp-frames"},
	{"ping, us", 1, "ping"},
}

// networks has a line for each subject and the columns that have figures.
func (rs rows) networks(mtu int) sheet {
	raw := ""
	if r := rs.find(rawMbps); r != nil {
		raw = "; ib_write_bw: " + cell(r)
	}
	t := sheet{title: fmt.Sprintf("Networks with an MTU of %d, Mbit/s%s", mtu, raw)}
	subjects := rs.subjects(func(r *row) bool { return isNetwork(r) && r.Size == mtu })
	lines := make([][]string, 1+len(subjects))
	lines[0] = []string{"subject"}
	for i, s := range subjects {
		lines[i+1] = []string{s}
	}
	for _, c := range networkColumns {
		measured := false
		column := make([]*row, len(subjects))
		for i, s := range subjects {
			column[i] = rs.find(key{"net", s, mtu, c.queues, c.metric})
			measured = measured || column[i] != nil
		}
		if !measured {
			continue
		}
		withRatio := raw != "" && c.metric == "tcp" && c.queues == 1
		lines[0] = append(lines[0], c.title)
		if withRatio {
			lines[0] = append(lines[0], "ratio")
		}
		for i, r := range column {
			lines[i+1] = append(lines[i+1], cell(r))
			if withRatio {
				lines[i+1] = append(lines[i+1], ratio(r))
			}
		}
	}
	t.lines = lines
	return t
}

// overload has a line for each network and kind of datagrams.
func (rs rows) overload() sheet {
	t := sheet{title: "More UDP than can be carried: the best, and of that what was offered and what arrived"}
	heading := []string{"datagrams", "subject", "best, Mbit/s"}
	factors := []string{"2", "5", "10"}
	for _, f := range factors {
		heading = append(heading, "offered", "arrived at "+f+"×")
	}
	t.add(heading...)
	for _, r := range rs {
		kind, ok := strings.CutPrefix(r.Name, "overload-")
		if !ok || r.Metric != "best" {
			continue
		}
		line := []string{kind, r.Subject, cell(&r)}
		for _, f := range factors {
			for _, what := range []string{"offered-", "arrived-"} {
				line = append(line, cell(rs.find(key{r.Name, r.Subject, r.Size, r.Queues, what + f})))
			}
		}
		t.add(line...)
	}
	return t
}

// roundTrips has a line for each state of the card.
func (rs rows) roundTrips() sheet {
	t := sheet{title: "Round trips of marked packets through the card, us"}
	t.add("subject", "MTU", "p50", "ratio", "p99", "ratio")
	for _, r := range rs {
		if r.Name == "rtt" && r.Metric == "p50" {
			p99 := rs.find(key{r.Name, r.Subject, r.Size, r.Queues, "p99"})
			t.add(r.Subject, strconv.Itoa(r.Size), cell(&r), ratio(&r), cell(p99), ratio(p99))
		}
	}
	return t
}

// counters has a line for each subject during whose measurements the devices'
// counters of trouble were watched.
func (rs rows) counters() sheet {
	t := sheet{title: "The devices' counters, times in a round"}
	match := func(r *row) bool { return r.Name == "counters" }
	t.add("subject", "receiver not ready", "sent again")
	for _, subject := range rs.subjects(match) {
		t.add(subject, cell(rs.find(key{"counters", subject, 0, 0, "rnr"})),
			cell(rs.find(key{"counters", subject, 0, 0, "retry"})))
	}
	return t
}

// cell is a median with the least and the greatest value.
func cell(r *row) string {
	switch {
	case r == nil:
		return ""
	case r.Min == r.Max:
		return figure(r.Median)
	}
	return fmt.Sprintf("%s (%s–%s)", figure(r.Median), figure(r.Min), figure(r.Max))
}

// figure prints three digits, or all of those before the point.
func figure(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v < 0.1:
		return strconv.FormatFloat(v, 'f', 4, 64)
	case v < 1:
		return strconv.FormatFloat(v, 'f', 3, 64)
	case v < 10:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case v < 100:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 0, 64)
}

func ratio(r *row) string {
	if r == nil || r.RatioTo == "" {
		return ""
	}
	return fmt.Sprintf("%.2f", r.Ratio)
}
