package results

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Table is a table of strings. The first line is the head.
type Table struct {
	Title string
	Lines [][]string
}

// Add adds a line.
func (t *Table) Add(cells ...string) { t.Lines = append(t.Lines, cells) }

// text writes the table for a terminal.
func (t *Table) text(w io.Writer) error {
	fmt.Fprintln(w, t.Title)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, l := range t.Lines {
		fmt.Fprintf(tw, "  %s\n", strings.Join(l, "\t"))
	}
	err := tw.Flush()
	fmt.Fprintln(w)
	return err
}

// markdown writes the table for a document.
func (t *Table) markdown(w io.Writer) error {
	fmt.Fprintf(w, "**%s**\n\n", t.Title)
	for i, l := range t.Lines {
		fmt.Fprintf(w, "| %s |\n", strings.Join(l, " | "))
		if i == 0 {
			fmt.Fprintf(w, "|%s\n", strings.Repeat("---|", len(l)))
		}
	}
	_, err := fmt.Fprintln(w)
	return err
}

// Matrix describes how rows become a table. The table has a line for each different Line, whose
// strings begin the line, and a column for each different Column. Both are in the order in which
// they first occur. A row is left out if its Line or its Column is empty.
type Matrix struct {
	Title  string
	Head   []string // the head of what begins the lines
	Line   func(r *Row) []string
	Column func(r *Row) string
	Ratio  func(r *Row) bool // whether a column with the ratio follows
	Median bool              // show the median without the least and the greatest value
}

// Table returns the table of rows.
func (m *Matrix) Table(rows Rows) Table {
	lines, cells := [][]string{}, map[string][]string{}
	var columns []string
	at := map[string]map[string]*Row{}
	ratios := map[string]bool{}
	for i := range rows {
		r := &rows[i]
		begin, column := m.Line(r), m.Column(r)
		if begin == nil || column == "" {
			continue
		}
		key := strings.Join(begin, "\t")
		if cells[key] == nil {
			cells[key], at[key] = begin, map[string]*Row{}
			lines = append(lines, begin)
		}
		if !slices.Contains(columns, column) {
			columns = append(columns, column)
		}
		at[key][column] = r
		ratios[column] = ratios[column] || m.Ratio != nil && m.Ratio(r) && r.RatioTo != ""
	}
	t := Table{Title: m.Title}
	head := slices.Clone(m.Head)
	for _, c := range columns {
		head = append(head, c)
		if ratios[c] {
			head = append(head, "ratio")
		}
	}
	t.Add(head...)
	for _, begin := range lines {
		l := slices.Clone(begin)
		for _, c := range columns {
			r := at[strings.Join(begin, "\t")][c]
			l = append(l, m.cell(r))
			if ratios[c] {
				l = append(l, r.ratio())
			}
		}
		t.Add(l...)
	}
	return t
}

// BySubject returns a function that makes a table with a line for each metric and a column for
// each subject.
func BySubject(title string) func(rs Rows) []Table {
	m := Matrix{
		Title: title, Head: []string{"what", "unit"},
		Line:   func(r *Row) []string { return []string{r.Metric, r.Unit} },
		Column: func(r *Row) string { return r.Subject },
	}
	return func(rs Rows) []Table { return []Table{m.Table(rs)} }
}

func (m *Matrix) cell(r *Row) string {
	switch {
	case r == nil:
		return ""
	case m.Median || r.Min == r.Max:
		return Figure(r.Median)
	}
	return fmt.Sprintf("%s (%s–%s)", Figure(r.Median), Figure(r.Min), Figure(r.Max))
}

// Figure formats v with three digits, or with all digits before the point. It has at most four
// digits after the point.
func Figure(v float64) string {
	digits := 0
	switch a := max(v, -v); {
	case a == 0 || a >= 100:
	case a < 0.1:
		digits = 4
	case a < 1:
		digits = 3
	case a < 10:
		digits = 2
	case a < 100:
		digits = 1
	}
	return strconv.FormatFloat(v, 'f', digits, 64)
}
