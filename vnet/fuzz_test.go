package vnet

import (
	"encoding/json"
	"testing"
)

// FuzzOffloads is about lists of offloads, from people and from peers.
func FuzzOffloads(f *testing.F) {
	for _, s := range []string{"", "none", "all", "csum,tso", "csum, TSO4,uso", "tso4", `["csum","tso4","later"]`, `null`,
		`[]`, `["csum",1]`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if o, err := ParseOffloads(s); err == nil {
			if again, err := ParseOffloads(o.String()); err != nil || again != o || o.Closure() != o {
				t.Errorf("%q are %v, and those %v, %v", s, o, again, err)
			}
		}
		var o, again Offloads
		if json.Unmarshal([]byte(s), &o) != nil {
			return
		}
		b, err := json.Marshal(o)
		if err == nil {
			err = json.Unmarshal(b, &again)
		}
		if err != nil || again != o || o&^AllOffloads != 0 {
			t.Errorf("%q are %v, encoded %s, and that %v, %v", s, o, b, again, err)
		}
	})
}
