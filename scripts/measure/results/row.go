package results

import (
	"fmt"
	"slices"
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

// Find returns the row of k, or nil if it was not measured.
func (rs Rows) Find(k Key) *Row {
	if i := slices.IndexFunc(rs, func(r Row) bool { return r.Key == k }); i >= 0 {
		return &rs[i]
	}
	return nil
}

// With returns the row with this metric, and otherwise the key k.
func (rs Rows) With(k Key, metric string) *Row {
	k.Metric = metric
	return rs.Find(k)
}

// ratio returns the text of the cell with the ratio of r. r may be nil.
func (r *Row) ratio() string {
	if r == nil || r.RatioTo == "" {
		return ""
	}
	return fmt.Sprintf("%.2f", r.Ratio)
}
