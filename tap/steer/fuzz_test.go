package steer

import (
	"strings"
	"testing"
)

// FuzzDSCP fuzzes the parser of lists of code points.
func FuzzDSCP(f *testing.F) {
	for _, s := range []string{"none", "", "ef", "EF, 46,cs6", "0", "63", "64", "-1", "none,ef", "va,ef,cs6,cs7"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		set, err := ParseDSCP(strings.Split(s, ","))
		if err != nil {
			return
		}
		var again DSCPSet
		if err := again.UnmarshalText([]byte(set.String())); err != nil || again != set {
			t.Errorf("%q are %v, and those %v, %v", s, set, again, err)
		}
		for _, w := range set.Words() {
			if one, err := ParseDSCP([]string{w}); err != nil || set&one != one || one == 0 {
				t.Errorf("%q are %v; of these %q is %v, %v", s, set, w, one, err)
			}
		}
	})
}
