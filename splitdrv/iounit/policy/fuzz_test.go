package policy

import (
	"testing"

	"github.com/splitnic/splitnic/protocol"
)

// FuzzValues fuzzes the parsers of policy values that have a syntax of their own: packet rates, IP
// prefixes, and patterns of MAC addresses.
func FuzzValues(f *testing.F) {
	for _, s := range []string{"0", "64M", "02:aa:*", "*", "02:aa:bb:cc:dd:ee", "02:*:00:00:00:00", "02:aa*", "", "50k",
		"192.0.2.1", "192.0.2.0/24", "2001:db8::/64"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := parsePPS(s); err == nil && (n < MinPPS || n > MaxPPS) {
			t.Errorf("%q are %d packets", s, n)
		}
		if p, err := ParseIPs(s); err == nil {
			if again, err := ParseIPs(p.String()); err != nil || again != p {
				t.Errorf("%q is %v, and that %v, %v", s, p, again, err)
			}
		}
		p, err := ParsePattern(s)
		if err != nil {
			return
		}
		own := p.Fit(protocol.MAC{2, 1, 2, 3, 4, 5})
		if again, err := ParsePattern(p.String()); err != nil || again != p || !p.Matches(own) {
			t.Errorf("%q is %v, and that %v, %v; it made %v", s, p, again, err, own)
		}
	})
}
