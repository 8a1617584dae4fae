package e2e

import (
	"testing"
)

// protection is the memory protection in a status.
type protection struct {
	Name, Why string
}

// TestRDMAProtection runs the endpoints with each protection, also with different ones at both ends,
// and checks in the status which one is in force. This is the configured one; by default the region,
// because the device has no better protection that can be trusted; and the region in modes that lend
// no memory.
func TestRDMAProtection(t *testing.T) {
	for _, c := range []struct{ unit, host, mode string }{
		{"", "", "imm"},
		{"window", "one-touch", "imm"},
		{"one-touch", "window", "indicate"},
		{"one-touch", "window", "send"},
	} {
		t.Run(c.mode+", unit "+c.unit+", host "+c.host, func(t *testing.T) {
			flags := func(p string) []string {
				if p == "" {
					return nil
				}
				return []string{"--protection", p}
			}
			r := newFixture(t, "macvtap", flags(c.unit)...)
			r.mode = c.mode
			h := r.host(t, flags(c.host)...)
			for _, size := range pingSizes {
				ping(t, h.ns, addr(0), 2, size)
			}
			want := func(asked string) string {
				if asked == "" || c.mode == "send" {
					return "region"
				}
				return asked
			}
			var hs struct {
				Protection protection
				Traffic    struct{ Protection protection }
			}
			var us struct {
				Protection protection
				Hosts      []struct {
					Traffic struct{ Protection protection }
				}
			}
			if !h.statusInto(&hs) || !r.unit.statusInto(&us) || len(us.Hosts) != 1 {
				t.Fatalf("no status: %+v %+v", hs, us)
			}
			for _, s := range []struct {
				role, asked         string
				configured, inForce protection
			}{
				{"host", c.host, hs.Protection, hs.Traffic.Protection},
				{"I/O unit", c.unit, us.Protection, us.Hosts[0].Traffic.Protection},
			} {
				if s.inForce.Name != want(s.asked) || s.inForce.Why == "" || s.asked != "" && s.configured.Name != s.asked {
					t.Errorf("%s, told %q: configured is %+v, in force %+v", s.role, s.asked, s.configured, s.inForce)
				}
			}
		})
	}
}
