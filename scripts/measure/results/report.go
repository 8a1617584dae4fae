package results

import (
	"errors"
	"fmt"
	"io"
	"slices"
)

// goals returns the table of goals.
func (f *File) goals() Table {
	t := Table{Title: "Goals"}
	t.Add("what", "subject", "goal", "reached", "")
	for _, g := range f.Goals {
		reached := Figure(g.Value) + " " + g.Unit
		if g.RatioTo != "" {
			reached = fmt.Sprintf("%.2f of %s", g.Value, g.RatioTo)
		}
		verdict := "missed"
		if g.Met {
			verdict = "met"
		}
		t.Add(g.What, g.Subject, g.Bound, reached, verdict)
	}
	return t
}

// tables returns all tables that have figures, the goals first.
func (s *Suite) tables(f *File) []Table {
	list := []Table{f.goals()}
	if s.Tables != nil {
		list = append(list, s.Tables(f.Rows)...)
	}
	return slices.DeleteFunc(list, func(t Table) bool { return len(t.Lines) < 2 })
}

// Write writes all tables, in Markdown or for a terminal.
func (s *Suite) Write(w io.Writer, f *File, markdown bool) error {
	_, err := fmt.Fprintf(w, "%s, %s, %v, rounds: %d\n\n", f.Suite, f.Begin.Format("2006-01-02 15:04"), f.Environment,
		f.Rounds)
	for _, t := range s.tables(f) {
		write := t.text
		if markdown {
			write = t.markdown
		}
		err = errors.Join(err, write(w))
	}
	if s.Remark != "" {
		fmt.Fprintf(w, "%s\n\n", s.Remark)
	}
	for _, n := range f.Notes {
		fmt.Fprintf(w, "Note: %s.\n", n)
	}
	return err
}
