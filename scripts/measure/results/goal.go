package results

import "fmt"

// Goal is a bound that a figure has to meet.
type Goal struct {
	What    string  `json:"what"`
	Subject string  `json:"subject"`
	Value   float64 `json:"value"`
	Unit    string  `json:"unit"` // "ratio" for a ratio
	RatioTo string  `json:"ratio_to,omitempty"`
	Bound   string  `json:"bound"` // such as ">= 0.8"
	Met     bool    `json:"met"`
}

// Reach returns the goal "OP BOUND" for v. op is ">=", "<=" or "<".
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

// ReachRatio returns the goal for the ratio of r, if r has a ratio. r may be nil.
func (r *Row) ReachRatio(what, op string, bound float64) []Goal {
	if r == nil || r.RatioTo == "" {
		return nil
	}
	g := Reach(what, r.Subject, r.Ratio, "ratio", op, bound)
	g.RatioTo = r.RatioTo
	return []Goal{g}
}

// ReachMedian returns the goal for the median of r. A row that was not measured is nil, and has no
// goal.
func (r *Row) ReachMedian(what, op string, bound float64) []Goal {
	if r == nil {
		return nil
	}
	return []Goal{Reach(what, r.Subject, r.Median, r.Unit, op, bound)}
}
