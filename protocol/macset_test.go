package protocol

import (
	"slices"
	"testing"
)

func TestMACSet(t *testing.T) {
	macs := []MAC{{2, 0, 0, 0, 0, 9}, {2}, {0xfe, 1, 2, 3, 4, 5}, {2, 0, 0, 0, 1, 0}, {2}, {2, 1}}
	others := []MAC{{}, {2, 0, 0, 0, 0, 8}, {2, 0, 0, 0, 0, 10}, {0xff, 255, 255, 255, 255, 255}, {2, 0, 0, 1}}
	for n := range len(macs) + 1 {
		s := NewMACSet(macs[:n])
		seen := map[int]MAC{}
		for _, m := range macs {
			i := s.Index(m)
			if in := slices.Contains(macs[:n], m); s.Has(m) != in || (i >= 0) != in {
				t.Errorf("%d addresses, %v: %t, index %d", n, m, s.Has(m), i)
			}
			if other, ok := seen[i]; i >= 0 && ok && other != m {
				t.Errorf("%v and %v have index %d", m, other, i)
			}
			if seen[i] = m; i >= len(s) {
				t.Errorf("%v has index %d of %d", m, i, len(s))
			}
		}
		for _, m := range others {
			if s.Has(m) {
				t.Errorf("%d addresses have %v", n, m)
			}
		}
	}
	var many []MAC
	for i := range 200 {
		many = append(many, MAC{2, byte(i * 37), 0, byte(i), 0, byte(255 - i)})
	}
	for n := range many {
		s := NewMACSet(many[:n])
		for i, m := range many {
			if s.Has(m) != (i < n) {
				t.Fatalf("%d addresses, %v: %t", n, m, s.Has(m))
			}
		}
	}
}
