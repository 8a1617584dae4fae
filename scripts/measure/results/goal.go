package results

import "fmt"

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
