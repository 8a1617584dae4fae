package results

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// Recorder appends to samples.jsonl. It is safe for concurrent use.
type Recorder struct {
	mu  sync.Mutex
	to  *json.Encoder
	err error
}

// NewRecorder returns a recorder that writes to w.
func NewRecorder(w io.Writer) *Recorder { return &Recorder{to: json.NewEncoder(w)} }

// Note records a remark about the figures.
func (r *Recorder) Note(format string, args ...any) {
	r.write(map[string]string{"note": fmt.Sprintf(format, args...)})
}

func (r *Recorder) write(v any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = errors.Join(r.err, r.to.Encode(v))
}

// Err returns the errors that occurred while figures were recorded.
func (r *Recorder) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// Of returns a sink for the figures of one group and subject.
func (r *Recorder) Of(group, subject string, size int) Sink {
	return Sink{r, Key{Group: group, Subject: subject, Size: size, Queues: 1}}
}

// Sink records figures that differ only in their metric.
type Sink struct {
	to  *Recorder
	key Key
}

// Add records a figure.
func (s Sink) Add(metric, unit string, v float64) {
	s.key.Metric = metric
	s.to.write(Sample{Key: s.key, Unit: unit, Value: v})
}

// read reads samples.jsonl. A line with a note has nothing else.
func read(r io.Reader) (samples []Sample, notes []string, err error) {
	d := json.NewDecoder(r)
	d.DisallowUnknownFields()
	for n := 1; ; n++ {
		var l struct {
			Sample
			Note string `json:"note"`
		}
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
