package top

import (
	"fmt"
	"strings"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/render"
	"github.com/splitnic/splitnic/internal/units"
)

// View has the settings for showing rates.
type View struct {
	Order  Order
	Totals bool // no line for each path
	JSON   bool // of all cards and paths
	// Width and Height are the size of the terminal in characters; 0: no limit.
	Width, Height int
}

const (
	nameWidth = 22
	pathWidth = 16
	rateWidth = 9
)

var headings = []string{"OUT bit/s", "OUT pkt/s", "IN bit/s", "IN pkt/s", "DROP/s", "WAIT/s"}

// Lines returns the lines of the table. If there are more than Height, it returns the first lines,
// and a line with the number of the others.
func (v *View) Lines(cards []Card) []string {
	Sort(cards, v.Order)
	lines := []string{line("CARD", "PATH", headings)}
	for i := range cards {
		c := &cards[i]
		lines = append(lines, line(c.Name, "all", texts(c.Rates, c.New)))
		if v.Totals {
			continue
		}
		for _, p := range c.Paths {
			lines = append(lines, line("", p.Name, texts(p.Rates, c.New)))
		}
	}
	if v.Height > 0 && len(lines) > v.Height {
		keep := max(v.Height-1, 0)
		lines = append(lines[:keep:keep], "… "+render.Counted(len(lines)-keep, "more line"))[:v.Height]
	}
	for i, l := range lines {
		if v.Width > 0 {
			lines[i] = render.Cut(l, v.Width)
		}
	}
	return lines
}

func line(name, path string, rates []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-*s  %-*s", nameWidth, render.Cut(name, nameWidth), pathWidth, render.Cut(path, pathWidth))
	for _, r := range rates {
		fmt.Fprintf(&b, " %*s", rateWidth, r)
	}
	return b.String()
}

func texts(r Rates, unknown bool) []string {
	var all []string
	for _, n := range []float64{r.OutBits, r.OutFrames, r.InBits, r.InFrames, r.Dropped, r.Waits} {
		text := units.Short(n)
		if unknown {
			text = "-"
		}
		all = append(all, text)
	}
	return all
}
