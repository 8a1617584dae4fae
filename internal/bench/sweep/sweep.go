// Package sweep finds out which settings of a driver's flags suit an adapter. It decides
// only: what measures is the caller's.
package sweep

import (
	"context"
	"fmt"
	"slices"
)

// Setting is a value of a flag.
type Setting struct{ Flag, Value string }

// String is how it is given on a command line; that of the zero Setting, which is all
// defaults, says so.
func (s Setting) String() string {
	if s == (Setting{}) {
		return "defaults"
	}
	return "--" + s.Flag + " " + s.Value
}

// Aim is something that is measured.
type Aim struct {
	Name, Unit string
	Less       bool // is better
}

// Measure measures one thing with one setting, and everything else as it is by default.
type Measure func(ctx context.Context, s Setting, a Aim) (float64, error)

// Figure is what repeated measurements came to.
type Figure struct {
	Median  float64 `json:"median"`
	Min     float64 `json:"min"`
	Max     float64 `json:"max"`
	Verdict Verdict `json:"verdict"`
}

// Verdict is how a setting compares to the defaults.
type Verdict string

// The verdicts. Figures differ if none of one setting is within the range of the other's:
// what is less than that may be chance.
const (
	Same   Verdict = "no difference"
	Better Verdict = "better"
	Worse  Verdict = "worse"
)

// Row is what was measured of a setting, in the order of the aims.
type Row struct {
	Setting
	Figures []Figure
}

// suits reports whether the setting is better for something, and worse for nothing.
func (r *Row) suits() bool {
	is := func(v Verdict) bool {
		return slices.ContainsFunc(r.Figures, func(f Figure) bool { return f.Verdict == v })
	}
	return is(Better) && !is(Worse)
}

// MinRounds is how many rounds there are at least: with fewer, ranges that do not overlap
// are nothing out of the ordinary. Of two times three figures that have no difference, all
// of one are beyond the other in one case of ten.
const MinRounds = 3

// Run measures the defaults and each setting in so many rounds, in turns, backwards in every
// other one, so that what changes meanwhile changes for all. The first row is that of the
// defaults.
func Run(ctx context.Context, settings []Setting, aims []Aim, rounds int, m Measure) ([]Row, error) {
	if rounds < MinRounds {
		return nil, fmt.Errorf("%d rounds: must be %d at least, or there is no telling differences from chance", rounds,
			MinRounds)
	}
	all := append([]Setting{{}}, settings...)
	samples := make([][][]float64, len(all))
	for i := range samples {
		samples[i] = make([][]float64, len(aims))
	}
	for round := range rounds {
		for n := range all {
			i := n
			if round%2 == 1 {
				i = len(all) - 1 - n
			}
			for a, aim := range aims {
				v, err := m(ctx, all[i], aim)
				if err != nil {
					return nil, fmt.Errorf("%v, %s: %w", all[i], aim.Name, err)
				}
				samples[i][a] = append(samples[i][a], v)
			}
		}
	}
	rows := make([]Row, len(all))
	for i, s := range all {
		rows[i] = Row{Setting: s}
		for a, aim := range aims {
			f := figure(samples[i][a])
			if i > 0 {
				f.Verdict = aim.compare(f, rows[0].Figures[a])
			}
			rows[i].Figures = append(rows[i].Figures, f)
		}
	}
	return rows, nil
}

func figure(samples []float64) Figure {
	v := slices.Sorted(slices.Values(samples))
	n := len(v)
	return Figure{Median: (v[(n-1)/2] + v[n/2]) / 2, Min: v[0], Max: v[n-1]}
}

// compare is the verdict about f.
func (a *Aim) compare(f, defaults Figure) Verdict {
	switch {
	case f.Min <= defaults.Max && f.Max >= defaults.Min:
		return Same
	case f.Median < defaults.Median == a.Less:
		return Better
	default:
		return Worse
	}
}

// Choose returns for each flag the setting that suits best, if any does: better than the
// defaults for something and worse for nothing. Among several it is the one that gains most
// for one aim. Settings of different flags were not measured together.
func Choose(rows []Row, aims []Aim) (chosen []Setting) {
	gains := map[string]float64{}
	for i := range rows[1:] {
		r := &rows[1+i]
		if !r.suits() {
			continue
		}
		gain := 0.0
		for a, f := range r.Figures {
			if f.Verdict == Better {
				gain = max(gain, aims[a].gain(f, rows[0].Figures[a]))
			}
		}
		at := slices.IndexFunc(chosen, func(s Setting) bool { return s.Flag == r.Flag })
		switch {
		case at < 0:
			chosen = append(chosen, r.Setting)
		case gain > gains[r.Flag]:
			chosen[at] = r.Setting
		default:
			continue
		}
		gains[r.Flag] = gain
	}
	return chosen
}

// gain is by what factor f is better.
func (a *Aim) gain(f, defaults Figure) float64 {
	if a.Less {
		f, defaults = defaults, f
	}
	if defaults.Median <= 0 {
		return 0
	}
	return f.Median / defaults.Median
}
