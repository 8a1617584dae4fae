package lan

import (
	"testing"
)

// FuzzSpec fuzzes the parser of specifications of LAN interfaces.
func FuzzSpec(f *testing.F) {
	for _, s := range []string{"eth1", "macvtap:eth1", "packet:eth1", "tap:br0", "tap:", "bridge:br0", "", ":",
		"packet:a:b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		kind, nic, err := ParseSpec(s)
		if err != nil {
			return
		}
		if k, n, err := ParseSpec(string(kind) + ":" + nic); err != nil || k != kind || n != nic {
			t.Errorf("%q is %s %q, and that %s %q, %v", s, kind, nic, k, n, err)
		}
	})
}
