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
	"sync"
	"time"
)

// Key is what two rows differ in at least.
type Key struct {
	Group   string `json:"group"`   // what was measured
	Subject string `json:"subject"` // of what
	Size    int    `json:"size"`    // bytes in a message, or the MTU
	Queues  int    `json:"queues"`  // queue pairs, data channels, or streams
	Metric  string `json:"metric"`
}

// Sample is one figure.
type Sample struct {
	Key
	Unit  string  `json:"unit"`
	Value float64 `json:"value"`
}

// Row is all figures of one kind in the order of the rounds, and what they come to.
type Row struct {
	Key
	Unit    string    `json:"unit"`
	Samples []float64 `json:"samples"`
	Median  float64   `json:"median"`
	Min     float64   `json:"min"`
	Max     float64   `json:"max"`
	Ratio   float64   `json:"ratio,omitempty"` // to the row of RatioTo in the same run
	RatioTo string    `json:"ratio_to,omitempty"`
}

// Rows are in the order in which their first samples came.
type Rows []Row

// Goal is what a figure is to reach.
type Goal struct {
	What    string  `json:"what"`
	Subject string  `json:"subject"`
	Value   float64 `json:"value"`
	Unit    string  `json:"unit"` // "ratio" if it is one
	RatioTo string  `json:"ratio_to,omitempty"`
	Bound   string  `json:"bound"` // such as ">= 0.8"
	Met     bool    `json:"met"`
}

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

// RatioByRound is the median of the rounds' ratios, 0 if there is none.
func RatioByRound(r, to *Row) float64 {
	var ratios []float64
	for i := range min(len(r.Samples), len(to.Samples)) {
		if r.Samples[i] > 0 && to.Samples[i] > 0 {
			ratios = append(ratios, r.Samples[i]/to.Samples[i])
		}
	}
	if len(ratios) == 0 {
		return 0
	}
	return Median(ratios)
}

// Median is the middle of v, or the mean of both in the middle.
func Median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	n := len(v)
	return (v[(n-1)/2] + v[n/2]) / 2
}

// Find returns the row of k, nil if it was not measured.
func (rs Rows) Find(k Key) *Row {
	if i := slices.IndexFunc(rs, func(r Row) bool { return r.Key == k }); i >= 0 {
		return &rs[i]
	}
	return nil
}

// With returns the row with another metric and else the same key.
func (rs Rows) With(k Key, metric string) *Row {
	k.Metric = metric
	return rs.Find(k)
}

// Reach is a goal that is reached by v of "OP BOUND", where op is ">=", "<=" or "<".
func Reach(what, subject string, v float64, unit, op string, bound float64) Goal {
	met := v >= bound
	switch op {
	case "<=":
		met = v <= bound
	case "<":
		met = v < bound
	}
	return Goal{What: what, Subject: subject, Value: v, Unit: unit, Bound: fmt.Sprintf("%s %g", op, bound), Met: met}
}

// ReachRatio is that of the ratio of r, if there is one.
func (r *Row) ReachRatio(what, op string, bound float64) []Goal {
	if r == nil || r.RatioTo == "" {
		return nil
	}
	g := Reach(what, r.Subject, r.Ratio, "ratio", op, bound)
	g.RatioTo = r.RatioTo
	return []Goal{g}
}

// ReachMedian is that of the median of r, if it was measured.
func (r *Row) ReachMedian(what, op string, bound float64) []Goal {
	if r == nil {
		return nil
	}
	return []Goal{Reach(what, r.Subject, r.Median, r.Unit, op, bound)}
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

// Recorder appends to samples.jsonl. It is safe for concurrent use.
type Recorder struct {
	mu  sync.Mutex
	to  *json.Encoder
	err error
}

// NewRecorder writes lines to w.
func NewRecorder(w io.Writer) *Recorder { return &Recorder{to: json.NewEncoder(w)} }

// Add notes a figure.
func (r *Recorder) Add(k Key, unit string, v float64) { r.write(Sample{Key: k, Unit: unit, Value: v}) }

// Note notes what is to be said about the figures.
func (r *Recorder) Note(format string, args ...any) {
	r.write(map[string]string{"note": fmt.Sprintf(format, args...)})
}

func (r *Recorder) write(v any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = errors.Join(r.err, r.to.Encode(v))
}

// Err is what went wrong while figures were noted.
func (r *Recorder) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// Of takes the figures of one group and subject.
func (r *Recorder) Of(group, subject string, size int) Sink {
	return Sink{r, Key{Group: group, Subject: subject, Size: size, Queues: 1}}
}

// Sink notes figures that differ in their metric only.
type Sink struct {
	to  *Recorder
	key Key
}

// Add notes a figure.
func (s Sink) Add(metric, unit string, v float64) {
	s.key.Metric = metric
	s.to.Add(s.key, unit, v)
}
