package results

import (
	"fmt"
	"slices"
	"strconv"
)

// Key identifies a row.
type Key struct {
	Group   string `json:"group"`   // what was measured
	Subject string `json:"subject"` // of which subject
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

// Row has all figures of one key in the order of the rounds, and their summary.
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

// Rows are in the order of their first samples.
type Rows []Row

// RatioByRound returns the median of the rounds' ratios, or 0 if there are none.
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

// Median returns the middle value of v, or the mean of the two middle values.
func Median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	n := len(v)
	return (v[(n-1)/2] + v[n/2]) / 2
}

// Percentile returns the value that this part of the sorted values v does not exceed.
func Percentile(v []float64, part float64) float64 {
	return v[min(int(float64(len(v))*part), len(v)-1)]
}

// Find returns the row of k, or nil if it was not measured.
func (rs Rows) Find(k Key) *Row {
	if i := slices.IndexFunc(rs, func(r Row) bool { return r.Key == k }); i >= 0 {
		return &rs[i]
	}
	return nil
}

// String returns the figures as a cell of a table has them.
func (r *Row) String() string {
	text := Figure(r.Median)
	if r.Min != r.Max {
		text += fmt.Sprintf(" (%s–%s)", Figure(r.Min), Figure(r.Max))
	}
	if r.RatioTo != "" {
		text += fmt.Sprintf(" ×%.2f", r.Ratio)
	}
	return text
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
