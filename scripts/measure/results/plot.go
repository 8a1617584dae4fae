package results

// Plot is a picture of figures: curves over numbers, or bars over names.
type Plot struct {
	Name  string // name of the file, without .svg
	Title string
	X, Y  string // what the axes show, with the unit

	// Columns are the names below the bars. Without columns the plot has curves.
	Columns []string
	// LogX and LogY say which axes are logarithmic: LogX is for curves, LogY for bars. All
	// figures on a logarithmic axis have to be above 0.
	LogX, LogY bool
	Series     []Series
	Level      *Level
}

// Series has the points of one name in the legend.
type Series struct {
	Name   string
	Points []Point
}

// Point is a figure with its spread. X is the number of the column if there are columns.
type Point struct{ X, Y, Min, Max float64 }

// Level is a horizontal line.
type Level struct {
	Name string
	Y    float64
}

// Curves returns p with a curve for each name. at returns the name and the horizontal value of a
// row. The curves are in the order in which their names first occur. Rows without a name are
// left out. Curves reports whether the result is a plot, which is not the case if each curve is
// a single point.
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
