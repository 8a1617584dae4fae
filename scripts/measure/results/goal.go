package results

import (
	"fmt"
	"path"
)

// Aim is a bound for the median of rows, or for their ratio to other rows.
type Aim struct {
	What string
	// Patterns of path.Match for the rows; empty: any. Size and Queues are any if they are 0.
	Group, Subject, Metric string
	Size, Queues           int
	// Ratio says that the bound is for the ratio of the row. To changes the key of the row into
	// that of another one, and the bound is for the ratio to that.
	Ratio bool
	To    func(k *Key)
	Op    string // ">=", "<=" or "<"
	Bound float64
}

// Goal is an aim for one row, and whether the row has met it.
type Goal struct {
	What    string  `json:"what"`
	Group   string  `json:"group"`
	Subject string  `json:"subject"`
	Value   float64 `json:"value"`
	Unit    string  `json:"unit"` // "ratio" for a ratio
	RatioTo string  `json:"ratio_to,omitempty"`
	Bound   string  `json:"bound"` // such as ">= 0.8"
	Met     bool    `json:"met"`
}

func (a *Aim) matches(k Key) bool {
	for _, p := range [][2]string{{a.Group, k.Group}, {a.Subject, k.Subject}, {a.Metric, k.Metric}} {
		if ok, _ := path.Match(p[0], p[1]); !ok && p[0] != "" {
			return false
		}
	}
	return (a.Size == 0 || a.Size == k.Size) && (a.Queues == 0 || a.Queues == k.Queues)
}

// goals returns the goals of all rows that match. A row without the other row has none.
func (a *Aim) goals(rs Rows) (list []Goal) {
	for i := range rs {
		r := &rs[i]
		if !a.matches(r.Key) {
			continue
		}
		g := Goal{What: a.What, Group: r.Group, Subject: r.Subject, Value: r.Median, Unit: r.Unit}
		switch {
		case a.To != nil:
			k := r.Key
			a.To(&k)
			to := rs.Find(k)
			if to == nil || to.Median <= 0 {
				continue
			}
			g.Value, g.Unit, g.RatioTo = r.Median/to.Median, "ratio", to.Subject
			if to.Group != r.Group {
				g.RatioTo = to.Group
			}
		case a.Ratio && r.RatioTo == "":
			continue
		case a.Ratio:
			g.Value, g.Unit, g.RatioTo = r.Ratio, "ratio", r.RatioTo
		}
		g.Bound = fmt.Sprintf("%s %g", a.Op, a.Bound)
		g.Met = map[string]bool{">=": g.Value >= a.Bound, "<=": g.Value <= a.Bound, "<": g.Value < a.Bound}[a.Op]
		list = append(list, g)
	}
	return list
}
