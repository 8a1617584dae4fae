package results

// Plot is a picture of figures: curves over numbers, or bars over names.
type Plot struct {
	Name  string // of its file, without .svg
	Title string
	X, Y  string // what the axes show, with the unit

	// Columns are the names below the bars; without them it has curves.
	Columns []string
	// Logarithmic axes: of curves the one from left to right, of bars the other one. All
	// figures there are above 0.
	LogX, LogY bool
	Series     []Series
	Level      *Level
}

// Series is what belongs to one name in the legend.
type Series struct {
	Name   string
	Points []Point
}

// Point is a figure with its spread. X is the number of the column if there are columns.
type Point struct{ X, Y, Min, Max float64 }

// Level is a line from left to right.
type Level struct {
	Name string
	Y    float64
}

// Curves makes a curve for each name over the numbers that at returns, in the order in
// which the names first come. Rows without a name are left out. It reports whether that is
// a plot: single points are none.
func (p Plot) Curves(rs Rows, at func(r *Row) (name string, x float64)) (Plot, bool) {
	index := map[string]int{}
	drawn := false
	for i := range rs {
		name, x := at(&rs[i])
		if name == "" {
			continue
		}
		s, ok := index[name]
		if !ok {
			s = len(p.Series)
			index[name] = s
			p.Series = append(p.Series, Series{Name: name})
		}
		p.Series[s].Points = append(p.Series[s].Points, Point{x, rs[i].Median, rs[i].Min, rs[i].Max})
		drawn = drawn || len(p.Series[s].Points) > 1
	}
	return p, drawn
}
