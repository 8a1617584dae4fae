// Package sweep finds the advanced settings of a driver that suit an adapter. It only decides; the
// caller measures.
package sweep

import (
	"context"
	"fmt"
	"slices"
)

// Setting is a value of an advanced setting.
type Setting struct{ Key, Value string }

// String returns the setting as in a configuration file. The zero Setting stands for all defaults, and its
// text says so.
func (s Setting) String() string {
	if s == (Setting{}) {
		return "defaults"
	}
	return s.Key + ": " + s.Value
}

// Aim is a measured property.
type Aim struct {
	Name, Unit string
	Less       bool // is better
}

// Measure measures one aim with one setting, and with the defaults of all other settings.
type Measure func(ctx context.Context, s Setting, a Aim) (float64, error)

// Figure is the result of repeated measurements.
type Figure struct {
	Median, Min, Max float64
	Verdict          Verdict
}

// Verdict is the result of the comparison of a setting with the defaults.
type Verdict string

// The verdicts. Two settings differ if no figure of one is within the range of the other's. Smaller
// differences may be random.
const (
	Same   Verdict = "no difference"
	Better Verdict = "better"
	Worse  Verdict = "worse"
)

// Row has the figures of a setting, in the order of the aims.
type Row struct {
	Setting
	Figures []Figure
}

// suits reports whether the setting is better for an aim, and worse for none.
func (r *Row) suits() bool {
	is := func(v Verdict) bool {
		return slices.ContainsFunc(r.Figures, func(f Figure) bool { return f.Verdict == v })
	}
	return is(Better) && !is(Worse)
}

// MinRounds is the least number of rounds. With fewer, ranges without overlap are likely by chance:
// with two times three figures of the same distribution, all figures of one are above or below all
// of the other in one case of ten.
const MinRounds = 3

// Run measures the defaults and each setting in turn, in this number of rounds, and in reverse order
// in every second round, so that changes of the machine meanwhile affect all. The first row is that
// of the defaults.
func Run(ctx context.Context, settings []Setting, aims []Aim, rounds int, m Measure) ([]Row, error) {
	if rounds < MinRounds {
		return nil, fmt.Errorf("%d rounds: must be %d at least, or there is no telling differences from chance", rounds,
			MinRounds)
	}
	all := append([]Setting{{}}, settings...)
	samples := map[Setting]map[Aim][]float64{}
	for _, s := range all {
		samples[s] = map[Aim][]float64{}
	}
	order := slices.Clone(all)
	for range rounds {
		for _, s := range order {
			for _, a := range aims {
				v, err := m(ctx, s, a)
				if err != nil {
					return nil, fmt.Errorf("%v, %s: %w", s, a.Name, err)
				}
				samples[s][a] = append(samples[s][a], v)
			}
		}
		slices.Reverse(order)
	}
	rows := make([]Row, len(all))
	for i, s := range all {
		rows[i] = Row{Setting: s}
		for n, a := range aims {
			f := figure(samples[s][a])
			if i > 0 {
				f.Verdict = a.compare(f, rows[0].Figures[n])
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

// compare returns the verdict about f.
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

// Choose returns the best suitable setting of each flag, if there is one. A setting is suitable if it
// is better than the defaults for an aim, and worse for none. The best one has the largest gain for
// one aim. Settings of different flags were not measured together.
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
		at := slices.IndexFunc(chosen, func(s Setting) bool { return s.Key == r.Key })
		switch {
		case at < 0:
			chosen = append(chosen, r.Setting)
		case gain > gains[r.Key]:
			chosen[at] = r.Setting
		default:
			continue
		}
		gains[r.Key] = gain
	}
	return chosen
}

// gain returns the factor by which f is better.
func (a *Aim) gain(f, defaults Figure) float64 {
	if a.Less {
		f, defaults = defaults, f
	}
	if defaults.Median <= 0 {
		return 0
	}
	return f.Median / defaults.Median
}
