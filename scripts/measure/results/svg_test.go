package results

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// picture has the content of an SVG.
type picture struct {
	texts map[string][]string // by class
	drawn map[string]int      // elements by class
	whole string              // the style
}

// look reads an SVG. It has to be well-formed.
func look(t *testing.T, svg []byte) picture {
	t.Helper()
	p := picture{texts: map[string][]string{}, drawn: map[string]int{}}
	d := xml.NewDecoder(bytes.NewReader(svg))
	class, inStyle := "", false
	for {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			return p
		}
		if err != nil {
			t.Fatalf("%v:\n%s", err, svg)
		}
		switch tok := tok.(type) {
		case xml.StartElement:
			class, inStyle = "", tok.Name.Local == "style"
			for _, a := range tok.Attr {
				if strings.Contains(a.Value, "NaN") || strings.Contains(a.Value, "Inf") {
					t.Errorf("%s of %s is %s", a.Name.Local, tok.Name.Local, a.Value)
				}
				if a.Name.Local == "class" {
					class = a.Value
					p.drawn[class]++
				}
			}
			if tok.Name.Local != "text" {
				class = ""
			}
		case xml.CharData:
			if class != "" {
				p.texts[class] = append(p.texts[class], string(tok))
			}
			if inStyle {
				p.whole += string(tok)
			}
		case xml.EndElement:
			class, inStyle = "", false
		}
	}
}

// TestSVG draws curves and bars. It expects the titles, each series and each figure in the SVG.
func TestSVG(t *testing.T) {
	curves := Plot{Title: "a < b & c", X: "bytes", Y: "MiB/s", LogX: true, Series: []Series{
		{"one", []Point{{1500, 20, 19, 25}, {64, 10, 10, 10}, {65535, 90, 80, 95}}},
		{"\"two\"", []Point{{64, 12, 12, 12}, {1500, 0, 0, 0}}},
	}}
	bars := Plot{Title: "bars", X: "traffic", Y: "µs", LogY: true, Columns: []string{"tcp", "udp"},
		Level: &Level{"most", 1200}, Series: []Series{
			{"one", []Point{{0, 3, 2, 4}, {1, 900, 900, 900}}}, {"two", []Point{{1, 40, 40, 41}}},
		}}
	for _, c := range []struct {
		plot  Plot
		texts map[string][]string
		drawn map[string]int
	}{
		{curves, map[string][]string{
			"title": {"a < b & c"}, "x": {"bytes"}, "y": {"MiB/s"}, "series": {"one", "\"two\""},
			"tick": {"0", "20", "40", "60", "80", "100", "64", "1500", "65535"},
		}, map[string]int{"line": 2, "mark": 7, "spread": 2, "s0": 1, "s1": 1}},
		{bars, map[string][]string{
			"title": {"bars"}, "x": {"traffic"}, "y": {"µs"}, "series": {"one", "two", "most"},
			"tick": {"1", "10", "100", "1000", "10000", "tcp", "udp"},
		}, map[string]int{"mark": 5, "spread": 2, "level": 1, "s0": 1, "s1": 1}},
	} {
		svg := c.plot.SVG()
		got := look(t, svg)
		if d := cmp.Diff(c.texts, got.texts); d != "" {
			t.Errorf("%s: %s", c.plot.Title, d)
		}
		for class, n := range c.drawn {
			if got.drawn[class] != n {
				t.Errorf("%s: %d of class %s, want %d", c.plot.Title, got.drawn[class], class, n)
			}
		}
		if !bytes.Equal(svg, c.plot.SVG()) {
			t.Errorf("%s: drawn again it is another picture", c.plot.Title)
		}
		begin := strings.Index(got.whole, "prefers-color-scheme:dark")
		for _, name := range []string{".paper{", "text{fill", ".grid{", ".axis,.level{", ".s0 .line", ".s6 .line"} {
			if i, j := strings.Index(got.whole, name), strings.LastIndex(got.whole, name); i >= begin || j <= begin {
				t.Errorf("no %s for bright pages, or for dark ones", name)
			}
		}
	}
	if got := look(t, (&Plot{}).SVG()); len(got.texts["tick"]) == 0 {
		t.Error("a plot without figures has no axes")
	}
}

// TestAxis expects all figures between the ends of an axis, and ticks that do not touch.
func TestAxis(t *testing.T) {
	for _, most := range []float64{0, 0.003, 0.99, 1, 7, 99.9, 100, 12345} {
		a := axis{first: bottom, after: top}
		a.span(0, most)
		if a.most < most || len(a.ticks) < 3 || len(a.ticks) > 8 || a.ticks[len(a.ticks)-1] != a.most {
			t.Errorf("up to %g: %+v", most, a)
		}
	}
	a := axis{log: true, first: left, after: right, least: 1, most: 1024}
	for v := 1.0; v <= 1024; v++ {
		a.ticks = append(a.ticks, v)
	}
	kept := apart(a)
	if len(kept) < 5 || !slices.IsSorted(kept) || kept[0] != 1 {
		t.Errorf("kept %v", kept)
	}
}

// TestCurves expects that single points are not a plot.
func TestCurves(t *testing.T) {
	rs := Rows{{Key: Key{Subject: "a", Size: 1}, Median: 1}, {Key: Key{Subject: "b", Size: 1}, Median: 2}}
	at := func(r *Row) (string, float64) { return r.Subject, float64(r.Size) }
	if _, drawn := (Plot{}).Curves(rs, at); drawn {
		t.Error("points are drawn")
	}
	rs = append(rs, Row{Key: Key{Subject: "a", Size: 2}, Median: 3, Min: 2, Max: 4}, Row{})
	p, drawn := Plot{}.Curves(rs, at)
	want := []Series{{"a", []Point{{1, 1, 0, 0}, {2, 3, 2, 4}}}, {"b", []Point{{1, 2, 0, 0}}}}
	if d := cmp.Diff(want, p.Series); d != "" || !drawn {
		t.Error(d)
	}
}
