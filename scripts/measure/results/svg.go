package results

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// The size of the picture, and the edges of the area that the axes enclose, in pixels.
const (
	width, height = 960, 540
	left, right   = 90, 690
	top, bottom   = 50, 470
)

// palette has the colours of a picture. The colours of the series are similar to those of Okabe
// and Ito, which colour-blind people can distinguish.
type palette struct {
	paper, ink, grid string
	series           []string
}

var bright = palette{"#fff", "#1b1b1b", "#d8d8d8", []string{
	"#0072b2", "#d55e00", "#009e73", "#a6447f", "#8a6d00", "#3a7ca5", "#666",
}}

var dark = palette{"#121418", "#e8e8e8", "#3a3d42", []string{
	"#56b4e9", "#ff9e4a", "#2fd6a6", "#e59ac6", "#f0e442", "#9bd0f5", "#bbb",
}}

// css returns the rules for all colours. They are without variables, which not every viewer
// supports.
func (p *palette) css() string {
	var b strings.Builder
	fmt.Fprintf(&b, ".paper{fill:%s}text{fill:%s}.grid{stroke:%s}.axis,.level{stroke:%s}\n", p.paper, p.ink, p.grid, p.ink)
	for i, c := range p.series {
		fmt.Fprintf(&b, ".s%d .line,.s%d .spread,.s%d .mark{stroke:%s}.s%d .mark{fill:%s}\n", i, i, i, c, i, c)
	}
	return b.String()
}

// style returns the style sheet of all pictures. On dark pages the pictures are dark.
func style() string {
	return "<style>\ntext{font:13px sans-serif}.title{font-size:16px;font-weight:bold}.axis,.line{fill:none}\n" +
		".line{stroke-width:2}.level{stroke-dasharray:6 4}\n" + bright.css() +
		"@media(prefers-color-scheme:dark){\n" + dark.css() + "}\n</style>\n"
}

// marks are drawn around a point, so that series of the same colour differ.
var marks = []string{"m-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z", "m-4-4h8v8h-8z", "m0-5l5 9h-10z", "m0-5l5 5l-5 5l-5-5z"}

// SVG returns the plot as an SVG. The same figures give the same bytes.
func (p *Plot) SVG() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img">`+"\n<title>%s</title>\n%s",
		width, height, escape(p.Title), style())
	fmt.Fprintf(&b, `<rect class="paper" width="%d" height="%d"/>`+"\n", width, height)
	label(&b, left, 30, "start", "title", p.Title)
	x, y := p.axes()
	p.grid(&b, x, y)
	label(&b, (left+right)/2, height-20, "middle", "x", p.X)
	fmt.Fprintf(&b, `<g transform="rotate(-90)">`)
	label(&b, -(top+bottom)/2, 24, "middle", "y", p.Y)
	fmt.Fprintln(&b, "</g>")
	for i := range p.Series {
		fmt.Fprintf(&b, `<g class="s%d">`+"\n", i%len(bright.series))
		if len(p.Columns) > 0 {
			p.bars(&b, i, x, y)
		} else {
			p.curve(&b, i, x, y)
		}
		row := float64(top + 10 + 22*i)
		mark(&b, i, right+25, row)
		label(&b, right+38, row+4, "start", "series", p.Series[i].Name)
		fmt.Fprintln(&b, "</g>")
	}
	if l := p.Level; l != nil {
		at := y.at(l.Y)
		fmt.Fprintf(&b, `<path class="level" d="M%d %sH%d"/>`+"\n", left, number(at), right)
		label(&b, right+5, at+4, "start", "series", l.Name)
	}
	fmt.Fprintf(&b, `<path class="axis" d="M%d %dV%dH%d"/>`+"\n</svg>\n", left, top, bottom, right)
	return b.Bytes()
}

// grid draws lines and numbers at the ticks, and the names of columns.
func (p *Plot) grid(b *bytes.Buffer, x, y axis) {
	for _, v := range y.ticks {
		at := y.at(v)
		fmt.Fprintf(b, `<path class="grid" d="M%d %sH%d"/>`+"\n", left, number(at), right)
		label(b, left-8, at+4, "end", "tick", value(v))
	}
	for i, name := range p.Columns {
		label(b, x.at(float64(i)), bottom+20, "middle", "tick", name)
	}
	for _, v := range x.ticks {
		fmt.Fprintf(b, `<path class="grid" d="M%s %dV%d"/>`+"\n", number(x.at(v)), top, bottom)
		label(b, x.at(v), bottom+20, "middle", "tick", value(v))
	}
}

// curve draws series i with the spread of each point.
func (p *Plot) curve(b *bytes.Buffer, i int, x, y axis) {
	points := slices.SortedFunc(slices.Values(p.Series[i].Points), func(a, b Point) int { return cmp.Compare(a.X, b.X) })
	var path strings.Builder
	for n, pt := range points {
		path.WriteString(map[bool]string{true: "M", false: "L"}[n == 0] + number(x.at(pt.X)) + " " + number(y.at(pt.Y)))
	}
	fmt.Fprintf(b, `<path class="line" d="%s"/>`+"\n", path.String())
	for _, pt := range points {
		spread(b, x.at(pt.X), y.at(pt.Min), y.at(pt.Max))
		mark(b, i, x.at(pt.X), y.at(pt.Y))
	}
}

// bars draws series i beside the other series of each column.
func (p *Plot) bars(b *bytes.Buffer, i int, x, y axis) {
	wide := 0.8 * (x.at(1) - x.at(0)) / float64(len(p.Series))
	for _, pt := range p.Series[i].Points {
		begin := x.at(pt.X) + wide*(float64(i)-float64(len(p.Series))/2)
		fmt.Fprintf(b, `<rect class="mark" x="%s" y="%s" width="%s" height="%s"/>`+"\n", number(begin), number(y.at(pt.Y)),
			number(wide*0.9), number(max(bottom-y.at(pt.Y), 0)))
		spread(b, begin+wide*0.45, y.at(pt.Min), y.at(pt.Max))
	}
}

// spread draws the range from the least to the greatest figure.
func spread(b *bytes.Buffer, x, least, greatest float64) {
	if least != greatest {
		fmt.Fprintf(b, `<path class="spread" d="M%s %sV%sm-4 0h8m-8 %sh8"/>`+"\n", number(x), number(least), number(greatest),
			number(least-greatest))
	}
}

func mark(b *bytes.Buffer, series int, x, y float64) {
	fmt.Fprintf(b, `<path class="mark" d="M%s %s%s"/>`+"\n", number(x), number(y), marks[series%len(marks)])
}

func label(b *bytes.Buffer, x, y float64, anchor, class, text string) {
	fmt.Fprintf(b, `<text class="%s" x="%s" y="%s" text-anchor="%s">%s</text>`+"\n", class, number(x), number(y), anchor,
		escape(text))
}

// axis maps values to pixels.
type axis struct {
	log          bool
	least, most  float64 // values at the ends
	first, after float64 // pixels of least and most
	ticks        []float64
}

// at returns the pixel of v.
func (a axis) at(v float64) float64 {
	least, most := a.least, a.most
	if a.log {
		v, least, most = math.Log(max(v, least)), math.Log(least), math.Log(most)
	}
	return a.first + (v-least)/(most-least)*(a.after-a.first)
}

// axes returns axes with room for all figures.
func (p *Plot) axes() (x, y axis) {
	x, y = axis{log: p.LogX, first: left, after: right}, axis{log: p.LogY, first: bottom, after: top}
	var xs, ys []float64
	for _, s := range p.Series {
		for _, pt := range s.Points {
			xs, ys = append(xs, pt.X), append(ys, pt.Y, pt.Min, pt.Max)
		}
	}
	if p.Level != nil {
		ys = append(ys, p.Level.Y)
	}
	if len(xs) == 0 {
		xs, ys = []float64{1}, []float64{1}
	}
	y.span(slices.Min(ys), slices.Max(ys))
	if n := len(p.Columns); n > 0 {
		x.least, x.most = -0.5, max(float64(n)-0.5, 0.6)
		return x, y
	}
	// The ticks are at measured values, and not at round ones.
	slices.Sort(xs)
	x.ticks = slices.Compact(xs)
	x.least, x.most = x.ticks[0], x.ticks[len(x.ticks)-1]
	if x.least == x.most {
		x.most++
	}
	x.ticks = apart(x)
	return x, y
}

// span sets the ends and the ticks of the axis. The axis begins at 0, or at a power of ten if it
// is logarithmic, and does not end before the greatest value.
func (a *axis) span(least, greatest float64) {
	if a.log {
		a.least = math.Pow(10, math.Floor(math.Log10(least)))
		a.most = math.Pow(10, math.Ceil(math.Log10(greatest)))
		if a.least >= a.most {
			a.most = 10 * a.least
		}
		for v := a.least; v <= a.most*1.001; v *= 10 {
			a.ticks = append(a.ticks, v)
		}
		return
	}
	if greatest <= 0 {
		greatest = 1
	}
	step := math.Pow(10, math.Floor(math.Log10(greatest)))
	for _, f := range []float64{0.2, 0.5, 1, 2} {
		if greatest/(step*f) <= 6 {
			step *= f
			break
		}
	}
	n := math.Ceil(greatest / step)
	a.most = n * step
	for i := range int(n) + 1 {
		a.ticks = append(a.ticks, float64(i)*step)
	}
}

// apart leaves out ticks whose numbers would touch the previous number.
func apart(a axis) (kept []float64) {
	const room = 45
	for _, v := range a.ticks {
		if len(kept) == 0 || a.at(v)-a.at(kept[len(kept)-1]) >= room {
			kept = append(kept, v)
		}
	}
	return kept
}

// number formats a pixel, rounded to a tenth.
func number(v float64) string { return strconv.FormatFloat(math.Round(10*v)/10, 'f', -1, 64) }

// value formats a value without the errors of computing it.
func value(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }

// escape returns the text s for XML.
func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // writing to a Builder does not fail
	return b.String()
}
