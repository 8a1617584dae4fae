package results

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Write writes all tables in Markdown, with columns that are also aligned in a terminal. There is
// one of the goals, and one of each group.
func (f *File) Write(w io.Writer) error {
	fmt.Fprintf(w, "%s, %s, %v, rounds: %d\n\n", f.Suite, f.Begin.Format("2006-01-02 15:04"), f.Environment, f.Rounds)
	goals := [][]string{{"goal", "group", "subject", "bound", "reached", ""}}
	for _, g := range f.Goals {
		reached := Figure(g.Value) + " " + g.Unit
		if g.RatioTo != "" {
			reached = fmt.Sprintf("%.2f of %s", g.Value, g.RatioTo)
		}
		goals = append(goals, []string{g.What, g.Group, g.Subject, g.Bound, reached,
			map[bool]string{true: "met", false: "missed"}[g.Met]})
	}
	err := table(w, "Goals", goals)
	var groups []string
	for i := range f.Rows {
		if g := f.Rows[i].Group; !slices.Contains(groups, g) {
			groups = append(groups, g)
			err = errors.Join(err, table(w, g, f.Rows.grid(g)))
		}
	}
	for _, n := range f.Notes {
		fmt.Fprintf(w, "Note: %s.\n", n)
	}
	return err
}

// table writes a table, unless it has only a head.
func table(w io.Writer, title string, lines [][]string) error {
	if len(lines) < 2 {
		return nil
	}
	fmt.Fprintf(w, "**%s**\n\n", title)
	tw := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	for i, l := range lines {
		fmt.Fprintf(tw, "| %s\t|\n", strings.Join(l, "\t| "))
		if i == 0 {
			fmt.Fprintf(tw, "%s|\n", strings.Repeat("|---\t", len(l)))
		}
	}
	err := tw.Flush()
	fmt.Fprintln(w)
	return err
}

// grid returns a table of a group: a line for each subject, size and number of queues, with a
// column for each metric; or the other way round if there are more metrics than subjects. A column
// "× of" names what ratios are to.
func (rs Rows) grid(group string) [][]string {
	var begins, metrics []string // of lines, and of columns
	cells, to := map[[2]string]string{}, map[string][]string{}
	add := func(list *[]string, s string) {
		if !slices.Contains(*list, s) {
			*list = append(*list, s)
		}
	}
	for i := range rs {
		r := &rs[i]
		if r.Group != group {
			continue
		}
		begin := r.Subject + "\t" + strconv.Itoa(r.Size) + "\t" + strconv.Itoa(r.Queues)
		metric := r.Metric + ", " + r.Unit
		add(&begins, begin)
		add(&metrics, metric)
		cells[[2]string{begin, metric}] = r.String()
		if r.RatioTo != "" {
			of := to[begin]
			add(&of, r.RatioTo)
			to[begin] = of
		}
	}
	head := append([]string{"subject", "size", "queues"}, metrics...)
	if len(to) > 0 {
		head = append(head, "× of")
	}
	lines := [][]string{head}
	for _, b := range begins {
		l := strings.Split(b, "\t")
		for _, m := range metrics {
			l = append(l, cells[[2]string{b, m}])
		}
		if len(to) > 0 {
			l = append(l, strings.Join(to[b], ", "))
		}
		lines = append(lines, l)
	}
	if len(metrics) > max(len(begins), 6) {
		return transposed(lines)
	}
	return lines
}

func transposed(lines [][]string) [][]string {
	turned := make([][]string, len(lines[0]))
	for _, l := range lines {
		for i, cell := range l {
			turned[i] = append(turned[i], cell)
		}
	}
	return turned
}
