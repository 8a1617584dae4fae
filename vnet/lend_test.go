package vnet

import (
	"slices"
	"testing"
)

// TestExtend adds parts of a frame to its pieces. A part must extend the last piece if it lies behind that in
// the same region, under the same key, and otherwise be a piece of its own, if there is room for one.
func TestExtend(t *testing.T) {
	mem := make([]byte, 100)
	type part struct {
		from, to int
		key      uint32
	}
	for name, c := range map[string]struct {
		parts []part
		want  []int // lengths of the pieces
		full  bool  // there is no room for the last part
	}{
		"one":                  {[]part{{0, 10, 1}}, []int{10}, false},
		"beside each other":    {[]part{{0, 10, 1}, {10, 30, 1}, {30, 60, 1}}, []int{60}, false},
		"not in order":         {[]part{{10, 30, 1}, {0, 10, 1}}, []int{20, 10}, false},
		"with a gap":           {[]part{{0, 10, 1}, {11, 30, 1}}, []int{10, 19}, false},
		"under different keys": {[]part{{0, 10, 1}, {10, 30, 2}}, []int{10, 20}, false},
		"too many":             {[]part{{0, 10, 1}, {20, 30, 1}, {40, 50, 1}}, []int{10, 10}, true},
	} {
		l := Lent{Pieces: make([]Piece, 0, 2)}
		for i, p := range c.parts {
			if ok := l.Extend(mem[p.from:p.to], p.key); ok == (c.full && i == len(c.parts)-1) {
				t.Errorf("%s: part %d is added: %t", name, i, ok)
			}
		}
		var got []int
		for _, p := range l.Pieces {
			got = append(got, len(p.Mem))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: pieces of %d bytes, want %d", name, got, c.want)
		}
	}
}
