// Package results has the common format of the benchmarks' results, summarises the results and
// shows them.
//
// While a suite runs, each figure is a [Sample], a line of JSON in the file samples.jsonl.
// Scripts append such lines as well. At the end [Run] makes results.json from the samples, and
// tables from results.json. The content of results.json is a [File].
package results

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"time"
)

// File is the content of results.json.
type File struct {
	Suite       string      `json:"suite"`
	Begin       time.Time   `json:"begin"`
	Environment Environment `json:"environment"`
	Rounds      int         `json:"rounds"`
	Rows        Rows        `json:"rows"`
	Goals       []Goal      `json:"goals"`
	Notes       []string    `json:"notes"` // remarks about the figures
}

// Suite describes the figures of one command.
type Suite struct {
	Name   string
	Rounds int // default number of rounds
	// Gaps says that a round may be without some figures. Otherwise a row with fewer samples
	// than other rows of its group and metric is an error.
	Gaps bool
	// ByRound makes a ratio the median of the ratios of the rounds, instead of the ratio of the
	// medians. The figures of a round are measured within seconds of each other.
	ByRound bool
	// References returns the keys of the rows to which r can be compared. The row with the
	// highest median counts.
	References func(r *Row) []Key
	Aims       []Aim
	Remark     string // a note below the tables
	// Flags adds the flags that say what to measure; nil: there are none.
	Flags func(flags *flag.FlagSet)
	// Measure measures in this number of rounds. args are the arguments after the flags. If it is nil,
	// they are a program, which appends to samples.jsonl.
	Measure func(ctx context.Context, rec *Recorder, rounds int, args []string) error
}

// Read reads the samples.jsonl of a run. It returns a File with the suite, the rows, the goals
// and the notes.
func (s *Suite) Read(r io.Reader) (File, error) {
	f := File{Suite: s.Name}
	samples, notes, err := read(r)
	if err != nil {
		return f, err
	}
	if f.Notes = notes; s.Remark != "" {
		f.Notes = append(f.Notes, s.Remark)
	}
	f.Rows, err = s.summarize(samples)
	for i := range s.Aims {
		f.Goals = append(f.Goals, s.Aims[i].goals(f.Rows)...)
	}
	return f, err
}

// summarize makes rows from samples.
func (s *Suite) summarize(samples []Sample) (Rows, error) {
	if len(samples) == 0 {
		return nil, errors.New("nothing was measured")
	}
	var rows Rows
	index := map[Key]int{}
	for _, v := range samples {
		i, ok := index[v.Key]
		if !ok {
			i = len(rows)
			index[v.Key] = i
			rows = append(rows, Row{Key: v.Key, Unit: v.Unit})
		}
		rows[i].Samples = append(rows[i].Samples, v.Value)
	}
	most := map[[2]string]int{}
	for i := range rows {
		r := &rows[i]
		r.Median, r.Min, r.Max = Median(r.Samples), slices.Min(r.Samples), slices.Max(r.Samples)
		k := [2]string{r.Group, r.Metric}
		most[k] = max(most[k], len(r.Samples))
	}
	var errs []error
	for i := range rows {
		r := &rows[i]
		if n := most[[2]string{r.Group, r.Metric}]; len(r.Samples) < n && !s.Gaps {
			errs = append(errs, fmt.Errorf("%s of %s, size %d, queues %d: %s was measured %d times, not %d",
				r.Group, r.Subject, r.Size, r.Queues, r.Metric, len(r.Samples), n))
		}
		s.compare(rows, r)
	}
	return rows, errors.Join(errs...)
}

// compare sets the ratio of r.
func (s *Suite) compare(rows Rows, r *Row) {
	if s.References == nil {
		return
	}
	var best *Row
	for _, k := range s.References(r) {
		if ref := rows.Find(k); ref != nil && ref.Median > 0 && (best == nil || ref.Median > best.Median) {
			best = ref
		}
	}
	switch {
	case best == nil:
	case s.ByRound:
		r.Ratio, r.RatioTo = RatioByRound(r, best), best.Subject
	default:
		r.Ratio, r.RatioTo = r.Median/best.Median, best.Subject
	}
}

// Load reads a results.json.
func Load(path string) (f File, err error) {
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &f)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return f, err
}
