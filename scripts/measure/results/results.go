// Package results is the one format of what the benchmarks measure, how it is
// summarised, and how it is shown.
//
// While a suite runs, each figure is a [Sample], a line of JSON in the file
// samples.jsonl: scripts append such lines as well. At the end [Run] makes
// results.json of them, a [File], and tables and plots of that.
package results

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"
)

// File is results.json.
type File struct {
	Suite       string      `json:"suite"`
	Begin       time.Time   `json:"begin"`
	Environment Environment `json:"environment"`
	Rounds      int         `json:"rounds"`
	Rows        Rows        `json:"rows"`
	Goals       []Goal      `json:"goals"`
	Notes       []string    `json:"notes"` // what is to be said about the figures
}

// Suite is what is known about the figures of one command.
type Suite struct {
	Name   string
	Rounds int // unless the user has another number
	// Gaps says that not every round has all figures. Otherwise a row with fewer
	// samples than others of its group and metric is an error.
	Gaps bool
	// ByRound makes a ratio the median of the rounds' own ratios, whose figures
	// are of neighbouring seconds, instead of the ratio of the medians.
	ByRound bool
	// References are what a row's ratio can be to: the highest of them counts.
	References func(r *Row) []Key
	Goals      func(rs Rows) []Goal
	Tables     func(rs Rows) []Table
	Plots      func(rs Rows) []Plot
	Remark     string // below the tables
}

// line is one of samples.jsonl.
type line struct {
	Sample
	Note string `json:"note"` // and nothing else
}

// Read makes what a File has about figures of the samples.jsonl of a run.
func (s *Suite) Read(r io.Reader) (File, error) {
	f := File{Suite: s.Name}
	samples, notes, err := read(r)
	if err != nil {
		return f, err
	}
	f.Notes = notes
	if f.Rows, err = s.summarize(samples); err == nil && s.Goals != nil {
		f.Goals = s.Goals(f.Rows)
	}
	return f, err
}

// read reads samples.jsonl.
func read(r io.Reader) (samples []Sample, notes []string, err error) {
	d := json.NewDecoder(r)
	d.DisallowUnknownFields()
	for n := 1; ; n++ {
		var l line
		switch err := d.Decode(&l); {
		case errors.Is(err, io.EOF):
			return samples, notes, nil
		case err != nil:
			return nil, nil, fmt.Errorf("sample %d: %w", n, err)
		case l.Note != "":
			notes = append(notes, l.Note)
		case l.Group == "" || l.Subject == "" || l.Metric == "":
			return nil, nil, fmt.Errorf("sample %d does not say of what it is: %+v", n, l.Sample)
		default:
			samples = append(samples, l.Sample)
		}
	}
}

// summarize makes rows of samples.
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
	type kind struct{ group, metric string }
	most := map[kind]int{}
	for i := range rows {
		r := &rows[i]
		r.Median, r.Min, r.Max = Median(r.Samples), slices.Min(r.Samples), slices.Max(r.Samples)
		k := kind{r.Group, r.Metric}
		most[k] = max(most[k], len(r.Samples))
	}
	var errs []error
	for i := range rows {
		r := &rows[i]
		if n := most[kind{r.Group, r.Metric}]; len(r.Samples) < n && !s.Gaps {
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
