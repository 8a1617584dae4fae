package sweep

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var aims = []Aim{{"half a round trip", "µs", true}, {"frames", "million/s", false}}

var (
	spin20, spin50 = Setting{"spin", "20us"}, Setting{"spin", "50us"}
	few, many      = Setting{"cq-moderation", "16,50us"}, Setting{"cq-moderation", "64,100us"}
)

// fake returns a Measure that takes the figures from a table, one after another. It records the
// order of the settings.
func fake(figures map[Setting][2][]float64, order *[]Setting) Measure {
	n := map[Setting][2]int{}
	return func(_ context.Context, s Setting, a Aim) (float64, error) {
		i := 0
		if a == aims[1] {
			i = 1
		} else {
			*order = append(*order, s)
		}
		at := n[s]
		list := figures[s][i]
		if at[i] == len(list) {
			return 0, errors.New("that is all")
		}
		at[i]++
		n[s] = at
		return list[at[i]-1], nil
	}
}

// TestSweep has measurements with and without differences. It expects those settings to be
// chosen that are better for one aim and worse for none. A difference counts only if it exceeds
// the differences between the figures of one setting.
func TestSweep(t *testing.T) {
	defaults := [2][]float64{{10, 12, 11}, {5, 6, 5.5}}
	same := [2][]float64{{11, 10.5, 12.5}, {5.2, 5.9, 6.1}}
	for _, c := range []struct {
		name     string
		settings map[Setting][2][]float64
		verdicts map[Setting][2]Verdict
		chosen   []Setting
	}{
		{"nothing differs", map[Setting][2][]float64{spin20: same, few: same},
			map[Setting][2]Verdict{spin20: {Same, Same}, few: {Same, Same}}, nil},
		{"medians differ, ranges overlap", map[Setting][2][]float64{spin20: {{1, 2, 10}, {5, 20, 30}}},
			map[Setting][2]Verdict{spin20: {Same, Same}}, nil},
		{"less is better", map[Setting][2][]float64{spin20: {{7, 8, 9.9}, {5, 6, 5.5}}},
			map[Setting][2]Verdict{spin20: {Better, Same}}, []Setting{spin20}},
		{"better for one, worse for the other", map[Setting][2][]float64{spin20: {{7, 8, 9}, {4, 4.9, 3}}},
			map[Setting][2]Verdict{spin20: {Better, Worse}}, nil},
		{"more is better", map[Setting][2][]float64{few: {{11, 10, 12}, {7, 8, 9}}},
			map[Setting][2]Verdict{few: {Same, Better}}, []Setting{few}},
		{"more is worse", map[Setting][2][]float64{few: {{13, 14, 15}, {5, 5, 5}}},
			map[Setting][2]Verdict{few: {Worse, Same}}, nil},
		{"the best of each flag", map[Setting][2][]float64{
			spin20: {{7, 8, 9}, {5, 6, 5.5}}, spin50: {{3, 4, 5}, {5, 6, 5.5}},
			few: {{11, 10, 12}, {9, 9, 9}}, many: {{11, 10, 12}, {7, 7, 7}},
		}, map[Setting][2]Verdict{spin20: {Better, Same}, spin50: {Better, Same}, few: {Same, Better}, many: {Same, Better}},
			[]Setting{spin50, few}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var settings, order []Setting
			for _, s := range []Setting{spin20, spin50, few, many} {
				if _, ok := c.settings[s]; ok {
					settings = append(settings, s)
				}
			}
			c.settings[Setting{}] = defaults
			rows, err := Run(t.Context(), settings, aims, 3, fake(c.settings, &order))
			if err != nil {
				t.Fatal(err)
			}
			got := map[Setting][2]Verdict{}
			for _, r := range rows[1:] {
				got[r.Setting] = [2]Verdict{r.Figures[0].Verdict, r.Figures[1].Verdict}
			}
			if d := cmp.Diff(c.verdicts, got); d != "" {
				t.Error(d)
			}
			if d := cmp.Diff(Figure{Median: 11, Min: 10, Max: 12}, rows[0].Figures[0]); d != "" {
				t.Errorf("the defaults: %s", d)
			}
			if d := cmp.Diff(c.chosen, Choose(rows, aims)); d != "" {
				t.Error(d)
			}
			n := len(settings)
			if order[0] != (Setting{}) || order[n+1] != settings[n-1] || order[2*n+1] != (Setting{}) {
				t.Errorf("measured in the order %v", order)
			}
		})
	}
}

// TestSweepFails expects an error that names the failed measurement, and an error for too few
// rounds.
func TestSweepFails(t *testing.T) {
	var order []Setting
	m := fake(map[Setting][2][]float64{{}: {{1, 1, 1}, {1, 1, 1}}, few: {{1}, {1, 1, 1}}}, &order)
	_, err := Run(t.Context(), []Setting{few}, aims, 3, m)
	if err == nil || !strings.Contains(err.Error(), "cq-moderation: 16,50us, half a round trip") {
		t.Error(err)
	}
	if _, err := Run(t.Context(), nil, aims, MinRounds-1, m); err == nil {
		t.Error("two rounds are enough")
	}
}
