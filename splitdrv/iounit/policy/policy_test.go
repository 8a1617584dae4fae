package policy

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/splitnic/splitnic/protocol"
)

const key = "sha256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"

func mac(t *testing.T, s string) protocol.MAC {
	t.Helper()
	m, err := protocol.ParseMAC(s)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	text := `# who may do what
hosts:
  alpha:
    macs: [02:aa:*, "52:54:00:12:34:56"]
    vlans: [5, 10-12]
    promiscuous: yes
    max-sessions: 40
    max-tx-rate: 500M
  ` + key + `:
    macs: 02:bb:00:00:00:01
    vlans: 7
    max-memory: 64M
    max-queues: 2
    max-rx-rate: unlimited
    max-tx-rate: 2.5Gbit
  gamma:
default:
  vlans: none
  modes: [send, imm]
  max-rx-rate: 100000000
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	alpha, keyed, gamma, other := p.For("sha256:xx", "alpha"), p.For(key, "alpha"), p.For("sha256:xx", "gamma"), p.For("sha256:xx", "")
	for _, tc := range []struct {
		mac          string
		alpha, keyed bool
	}{
		{"02:aa:00:00:00:01", true, false},
		{"02:ab:00:00:00:01", false, false},
		{"52:54:00:12:34:56", true, false},
		{"52:54:00:12:34:57", false, false},
		{"02:bb:00:00:00:01", false, true},
	} {
		m := mac(t, tc.mac)
		if alpha.MayUse(m) != tc.alpha || keyed.MayUse(m) != tc.keyed || !gamma.MayUse(m) || !other.MayUse(m) {
			t.Errorf("%s: alpha %t, the key %t, gamma %t, others %t", m, alpha.MayUse(m), keyed.MayUse(m), gamma.MayUse(m), other.MayUse(m))
		}
	}
	for h, want := range map[*Host]string{alpha: "5,10-12", keyed: "7", gamma: "none", other: "none"} {
		if got := h.VLANs.String(); got != want {
			t.Errorf("VLANs %s, want %s", got, want)
		}
		if !slices.Equal(h.Modes, []protocol.Mode{protocol.ModeSend, protocol.ModeImm}) {
			t.Errorf("modes %v", h.Modes)
		}
		if h.Promiscuous != (h == alpha) {
			t.Errorf("promiscuous: %t", h.Promiscuous)
		}
	}
	if alpha.MaxSessions != 40 || keyed.MaxSessions != DefaultSessions || keyed.MaxMemory != 64<<20 || keyed.MaxQueues != 2 || alpha.MaxMemory != 0 || alpha.MaxQueues != 0 {
		t.Errorf("%+v, %+v", alpha, keyed)
	}
	for h, want := range map[*Host][2]int64{alpha: {5e8, 1e8}, keyed: {25e8, 0}, gamma: {0, 1e8}, other: {0, 1e8}} {
		if got := [2]int64{h.MaxTxRate, h.MaxRxRate}; got != want {
			t.Errorf("rates %d to the LAN and from it, want %d", got, want)
		}
	}
}

// TestNothingInIt loads files that say nothing, and one that says so.
func TestNothingInIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	for text, nothing := range map[string]bool{
		"": true, " \n\n": true, "# default:\n#   vlans: none\n": true, "---\n  # nothing\n": true,
		"# everything\ndefault: {}\n": false, "---\ndefault:\n": false,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		p, err := Load(path)
		if (err != nil) != nothing || (p == nil) != nothing || nothing && !strings.Contains(err.Error(), "nothing in it") {
			t.Errorf("%q: %v, %v", text, p, err)
		}
	}
}

func TestDefault(t *testing.T) {
	for name, p := range map[string]*Policy{"none": Default(), "an empty file": parse(t, ""), "no entries": parse(t, "hosts:\ndefault:\n"), "only a comment": parse(t, "# nothing\n")} {
		h := p.For(key, "")
		if h.MACs != nil || h.VLANs != protocol.AllVLANs() || h.Promiscuous || h.MaxQueues != 0 || h.MaxMemory != 0 || h.MaxTxRate != 0 || h.MaxRxRate != 0 || h.MaxSessions != DefaultSessions || !slices.Equal(h.Modes, protocol.Modes()) {
			t.Errorf("%s: %+v", name, h)
		}
	}
}

func parse(t *testing.T, text string) *Policy {
	t.Helper()
	p, err := Parse("p.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestErrors(t *testing.T) {
	for _, tc := range []struct{ text, want string }{
		{"hosts:\n  alpha:\n    macs: [02:aa:*, 02:zz:*]", "p.yaml:3: host alpha: macs: \"02:zz:*\""},
		{"hosts:\n  alpha:\n    macs: 01:00:5e:00:00:01", "p.yaml:3: host alpha: macs:"},
		{"hosts:\n  alpha:\n    macs: 01:*", "the first byte of a host's address is even"},
		{"hosts:\n  alpha:\n    macs: 02:aa:bb:cc:dd:ee:*", "one to five bytes"},
		{"hosts:\n  alpha:\n    macs: []", "p.yaml:3: host alpha: macs: the list is empty"},
		{"hosts:\n  alpha:\n    vlans: 5000", "p.yaml:3: host alpha: vlans:"},
		{"hosts:\n  alpha:\n    vlans: {a: b}", "use all, none, or numbers"},
		{"hosts:\n  alpha:\n    promiscuous: maybe", "must be yes or no"},
		{"hosts:\n  alpha:\n    max-queues: 0", "must be a number above 0"},
		{"hosts:\n  alpha:\n    max-memory: 64X", "p.yaml:3: host alpha: max-memory: \"64X\" is no size"},
		{"hosts:\n  alpha:\n    max-memory: 0", "must be above 0"},
		{"hosts:\n  alpha:\n    max-tx-rate: 10MBps", "p.yaml:3: host alpha: max-tx-rate: \"10MBps\" is no rate; use bits per second with k, M or G such as 500M"},
		{"hosts:\n  alpha:\n    vlans: 5\n    max-rx-rate: 500", "p.yaml:4: host alpha: max-rx-rate: \"500\" is no rate from 100k to 1T"},
		{"default:\n  max-rx-rate: 0", "p.yaml:2: default: max-rx-rate: \"0\" is no rate from 100k to 1T bits per second; use k, M or G such as 500M or 2.5G, or unlimited"},
		{"default:\n  max-tx-rate: [1G]", "p.yaml:2: default: max-tx-rate: \"\" is no rate"},
		{"hosts:\n  alpha:\n    modes: [imm, fast]", "p.yaml:3: host alpha: modes:"},
		{"hosts:\n  alpha:\n    vlan: 5", "p.yaml:3: host alpha: unknown key \"vlan\"; there are macs, vlans"},
		{"host:\n  alpha:", "p.yaml:1: unknown key \"host\"; a policy has"},
		{"hosts:\n  alpha:\n  - 5", "p.yaml:"},
		{"hosts: 5", "p.yaml:1: hosts must be a map"},
		{"- a\n- b", "p.yaml:1: a policy must be a map"},
		{"hosts:\n  al pha:\n    vlans: all", "p.yaml:2: host \"al pha\": must be the name"},
		{"hosts:\n  sha256:0011:\n    vlans: all", "p.yaml:2: host \"sha256:0011\""},
		{"hosts:\n  alpha:\n    vlans: all\n  alpha:\n    vlans: none", "p.yaml:4"},
		{"default:\n  vlans: all\n bad", "p.yaml:"},
		{"hosts:\n---\nhosts:", "more than one YAML document"},
		{"hosts:\n\tbad", "p.yaml:"},
	} {
		_, err := Parse("p.yaml", []byte(tc.text))
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q: %v, want %q", tc.text, err, tc.want)
		} else if strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: an error of several lines: %v", tc.text, err)
		}
	}
	if _, err := Load(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a file that does not exist was read")
	}
}

func TestPattern(t *testing.T) {
	m := mac(t, "06:05:04:03:02:01")
	for s, want := range map[string]string{"02:aa:*": "02:aa:04:03:02:01", "02:00:00:00:00:01": "02:00:00:00:00:01", "02:*": "02:05:04:03:02:01"} {
		p, err := ParsePattern(s)
		if err != nil || p.String() != s || p.Fit(m).String() != want || !p.Matches(p.Fit(m)) || p.Matches(m) {
			t.Errorf("%s: %v, fitted %v, %v", s, p, p.Fit(m), err)
		}
	}
}

func TestParseSize(t *testing.T) {
	for s, want := range map[string]int64{
		"0": 0, "4096": 4096, "1k": 1 << 10, "64K": 64 << 10, "2M": 2 << 20, "3Mi": 3 << 20, "3MiB": 3 << 20, "1GB": 1 << 30, "1T": 1 << 40, "17B": 17,
		"": -1, "-1": -1, "M": -1, "1i": -1, "1iB": -1, "1kM": -1, "1.5G": -1, "9999999999T": -1, "64X": -1, "1BB": -1,
	} {
		got, err := ParseSize(s)
		if want < 0 && err == nil || want >= 0 && (err != nil || got != want) {
			t.Errorf("%q: %d, %v, want %d", s, got, err, want)
		}
	}
}

func TestParseRate(t *testing.T) {
	for s, want := range map[string]int64{
		"100000": 1e5, "100k": 1e5, "100K": 1e5, "500M": 5e8, "500m": 5e8, "1G": 1e9, "1Gbit": 1e9, "100mbit": 1e8, "1T": 1e12, "2.5G": 25e8, "0.1M": 1e5, "100000bit": 1e5,
		"33.333333M": 33_333_333, ".5M": 5e5, "1.G": 1e9,
		"": -1, "M": -1, "99999": -1, "99k": -1, "0": -1, "-1G": -1, "1.1T": -1, "1e9": -1, "1Gi": -1, "1Gibit": -1, "1Gbps": -1, "1 G": -1, "1.2.3G": -1, "1GG": -1,
		"99999999999999999999999999G": -1, "0x10M": -1, "NaN": -1, "Inf": -1, "1_000k": -1, "unlimited": -1, ".G": -1,
	} {
		got, err := ParseRate(s)
		if want < 0 && err == nil || want >= 0 && (err != nil || got != want) {
			t.Errorf("%q: %d, %v, want %d", s, got, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("hosts:\n  alpha:\n    macs: [02:aa:*]\n    vlans: [5, 10-12]\n")
	f.Add("default:\n  modes: imm\n  max-memory: 64M\n  promiscuous: on\n")
	f.Add("default: {max-tx-rate: 1Gbit}\nhosts: {a: {max-rx-rate: 2.5m, max-tx-rate: unlimited}}")
	f.Add("hosts: {a: {vlans: all}, " + key + ": {max-queues: 1}}")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Parse("p.yaml", []byte(text))
		if err != nil {
			return
		}
		for _, h := range append([]*Host{&p.def}, slices.Collect(maps.Values(p.hosts))...) {
			if len(h.Modes) == 0 || h.MaxSessions < 1 || h.MaxMemory < 0 || h.MaxQueues < 0 || h.VLANs.Has(0) || h.VLANs.Has(4095) {
				t.Errorf("%q: %+v", text, h)
			}
			for _, rate := range []int64{h.MaxTxRate, h.MaxRxRate} {
				if rate != 0 && (rate < MinRate || rate > MaxRate) {
					t.Errorf("%q: a rate of %d", text, rate)
				}
			}
		}
	})
}
