package protocol

import (
	"slices"
	"testing"
)

// FuzzText fuzzes the parsers of values in files and on command lines. If a text is accepted, the
// string of its value has to be accepted too, with the same value.
func FuzzText(f *testing.F) {
	for _, s := range []string{
		"02:00:00:00:00:01", "02-aa-bb-cc-dd-ee", "0200.0000.0001", "01:00:5e:00:00:01", "ff:ff:ff:ff:ff:ff",
		"02:00:00:00:00:00:00:01",
		"none", "all", "1", "2,10-20", " 5 , 7-7", "4094-4095", "20-10", "1-", "imm", "send-uc", "",
		"00000000000000ff", "00000000000000000000000000000001",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if mac, err := ParseMAC(s); err == nil {
			if again, err := ParseMAC(mac.String()); err != nil || again != mac || !mac.Valid() {
				t.Errorf("%q is the address %v, and that %v, %v", s, mac, again, err)
			}
		}
		var g, again Group
		if err := g.UnmarshalText([]byte(s)); err == nil {
			if err := again.UnmarshalText([]byte(g.String())); err != nil || again != g || !g.Valid() {
				t.Errorf("%q is the group %v, and that %v, %v", s, g, again, err)
			}
		}
		if set, err := ParseVLANs(s); err == nil {
			if again, err := ParseVLANs(set.String()); err != nil || again != set || set.Has(0) || set.Has(MaxVLAN+1) {
				t.Errorf("%q are the VLANs %v, and those %v, %v", s, set, again, err)
			}
		}
		var p, p2 Platform
		if err := p.UnmarshalText([]byte(s)); err == nil {
			if err := p2.UnmarshalText([]byte(p.String())); err != nil || p2 != p || p == 0 {
				t.Errorf("%q is the platform %v, and that %v, %v", s, p, p2, err)
			}
		}
		var run, run2 Run
		if err := run.UnmarshalText([]byte(s)); err == nil {
			text, _ := run.MarshalText()
			if err := run2.UnmarshalText(text); err != nil || run2 != run {
				t.Errorf("%q is the run %x, and that %x, %v", s, run, run2, err)
			}
		}
		if m, err := ParseMode(s); err == nil && (string(m) != s || !slices.Contains(Modes(), m)) {
			t.Errorf("%q is the mode %q", s, m)
		}
	})
}
