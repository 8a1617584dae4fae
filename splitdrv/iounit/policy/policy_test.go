package policy

import (
	"fmt"
	"maps"
	"math/rand/v2"
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
	own := mac(t, "02:aa:77:00:00:01")
	alpha, keyed, gamma, other := p.For("sha256:xx", "alpha"), p.For(key, "alpha"), p.For("sha256:xx", "gamma"),
		p.For("sha256:xx", "")
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
		if alpha.MayUse(m, own) != tc.alpha || keyed.MayUse(m, own) != tc.keyed || gamma.MayUse(m, own) ||
			other.MayUse(m, own) {
			t.Errorf("%s: alpha %t, the key %t, gamma %t, others %t", m, alpha.MayUse(m, own), keyed.MayUse(m, own),
				gamma.MayUse(m, own), other.MayUse(m, own))
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
	if alpha.MaxSessions != 40 || keyed.MaxSessions != DefaultSessions || keyed.MaxMemory != 64<<20 ||
		keyed.MaxQueues != 2 || alpha.MaxMemory != 0 || alpha.MaxQueues != 0 {
		t.Errorf("%+v, %+v", alpha, keyed)
	}
	for h, want := range map[*Host][2]int64{alpha: {5e8, 1e8}, keyed: {25e8, 0}, gamma: {0, 1e8}, other: {0, 1e8}} {
		if got := [2]int64{h.MaxTxRate, h.MaxRxRate}; got != want {
			t.Errorf("rates %d to the LAN and from it, want %d", got, want)
		}
	}
}

// TestNothingInIt loads files without any entry, and expects an error. Files with an
// empty entry are valid.
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
		if (err != nil) != nothing || (p == nil) != nothing || nothing && !strings.Contains(err.Error(), "empty policy") {
			t.Errorf("%q: %v, %v", text, p, err)
		}
	}
}

// TestOtherEncoding loads a file in UTF-16, which is not an empty one.
func TestOtherEncoding(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(path, []byte("\xff\xfed\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), "UTF-16") {
		t.Error(err)
	}
}

func TestDefault(t *testing.T) {
	for name, p := range map[string]*Policy{"none": Default(), "an empty file": parse(t, ""),
		"no entries": parse(t, "hosts:\ndefault:\n"), "only a comment": parse(t, "# nothing\n")} {
		h := p.For(key, "")
		if h.MACs != nil || !h.OwnMAC || h.AnyMAC || h.TaggedOnly || h.SingleTag || h.LinkControl || h.RequireBind ||
			h.IPs != nil || h.Share != "" || h.MaxTxPPS != 0 || h.MaxRxPPS != 0 || h.MaxTxGroupPPS != 0 ||
			h.VLANs != protocol.AllVLANs() || h.Promiscuous || h.MaxQueues != 0 || h.MaxMemory != 0 ||
			h.MaxTxRate != 0 || h.MaxRxRate != 0 || h.MaxSessions != DefaultSessions ||
			!slices.Equal(h.Modes, protocol.Modes()) {
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
		{"hosts:\n  alpha:\n    macs: mine", "p.yaml:3: host alpha: macs: parse MAC address"},
		{"hosts:\n  alpha:\n    macs: [own, any]", "use own, any, addresses such as"},
		{"hosts:\n  alpha:\n    share: [a, b]", "p.yaml:3: host alpha: share: \"[a, b]\" must be a word such as bond1"},
		{"hosts:\n  alpha:\n    ips: [192.0.2.1, 192.0.2]",
			"p.yaml:3: host alpha: ips: \"192.0.2\" is no IP address; use any, addresses such as"},
		{"default:\n  ips: 192.0.2.1/24",
			"p.yaml:2: default: ips: \"192.0.2.1/24\" has bits behind its prefix; use 192.0.2.0/24 or 192.0.2.1"},
		{"default:\n  ips: []", "the list is empty"},
		{"default:\n  nested-tags: 2", "p.yaml:2: default: nested-tags: \"2\" must be yes or no"},
		{"default:\n  link-control: lldp", "link-control: \"lldp\" must be yes or no"},
		{"default:\n  require-bind: [yes]", "require-bind: \"[yes]\" must be yes or no"},
		{"default:\n  max-tx-pps: 10M/s", "p.yaml:2: default: max-tx-pps: \"10M/s\" is no number of packets per second from 100 to 1G; use k or M such as 50k or 1.5M, or unlimited"},
		{"default:\n  max-rx-pps: 0", "max-rx-pps: \"0\" is no number"},
		{"default:\n  vlans: all\n  max-tx-group-pps: 99",
			"p.yaml:3: default: max-tx-group-pps: \"99\" is no number of packets per second from 100"},
		{"hosts:\n  alpha:\n    vlans: 5000", "p.yaml:3: host alpha: vlans:"},
		{"hosts:\n  alpha:\n    vlans: {a: b}", "use all, none, or numbers"},
		{"hosts:\n  alpha:\n    promiscuous: maybe", "must be yes or no"},
		{"hosts:\n  alpha:\n    max-queues: 0", "must be a number above 0"},
		{"hosts:\n  alpha:\n    max-macs: 513", "p.yaml:3: host alpha: max-macs: \"513\" must be a number from 1 to 512"},
		{"hosts:\n  alpha:\n    max-memory: 64X", "p.yaml:3: host alpha: max-memory: \"64X\" is no size"},
		{"hosts:\n  alpha:\n    max-memory: 0", "must be above 0"},
		{"hosts:\n  alpha:\n    max-tx-rate: 10MBps",
			"p.yaml:3: host alpha: max-tx-rate: \"10MBps\" is no rate; use bits per second with k, M or G such as 500M"},
		{"hosts:\n  alpha:\n    vlans: 5\n    max-rx-rate: 500",
			"p.yaml:4: host alpha: max-rx-rate: \"500\" is no rate from 100k to 1T"},
		{"default:\n  max-rx-rate: 0", "p.yaml:2: default: max-rx-rate: \"0\" is no rate from 100k to 1T bits per second; use k, M or G such as 500M or 2.5G, or unlimited"},
		{"default:\n  max-tx-rate: [1G]", "p.yaml:2: default: max-tx-rate: \"[1G]\" is no rate"},
		{"hosts:\n  alpha:\n    modes: [imm, fast]", "p.yaml:3: host alpha: modes:"},
		{"hosts:\n  alpha:\n    vlan: 5", "p.yaml:3: host alpha: unknown key \"vlan\"; there are macs, share, ips, vlans"},
		{"host:\n  alpha:", "p.yaml:1: unknown key \"host\"; there are default, hosts"},
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

// TestLoadMore loads entries with all keys about addresses, tags and packets.
func TestLoadMore(t *testing.T) {
	p := parse(t, `
default: {macs: any, ips: [192.0.2.0/24], share: rack, untagged: no, nested-tags: no, link-control: yes,
  require-bind: yes, max-macs: 512, max-tx-rate: 1G, max-tx-pps: 50k, max-rx-pps: 1.5M, max-tx-group-pps: 2k}
hosts:
  alpha: {macs: [own, "02:aa:*"], ips: any, share: none, untagged: yes, nested-tags: yes, link-control: no,
    require-bind: no, max-tx-rate: unlimited, max-tx-pps: unlimited, max-rx-pps: unlimited, max-tx-group-pps: unlimited}
  beta: {macs: own, ips: [192.0.2.7, "2001:db8::/64"]}
  gamma: {macs: "02:aa:00:00:00:01"}
`)
	def, alpha, beta := p.For("", ""), p.For("", "alpha"), p.For("", "beta")
	if !def.AnyMAC || !def.OwnMAC || !def.TaggedOnly || !def.SingleTag || !def.LinkControl || !def.RequireBind ||
		def.Share != "rack" || def.MaxMACs != 512 || def.MaxTxRate != 1_000_000_000 ||
		def.MaxTxPPS != 50_000 || def.MaxRxPPS != 1_500_000 || def.MaxTxGroupPPS != 2000 || len(def.IPs) != 1 {
		t.Errorf("%+v", def)
	}
	if alpha.AnyMAC || !alpha.OwnMAC || alpha.TaggedOnly || alpha.SingleTag || alpha.LinkControl || alpha.RequireBind ||
		alpha.Share != "" || alpha.MaxTxRate != 0 ||
		alpha.MaxTxPPS != 0 || alpha.MaxRxPPS != 0 || alpha.MaxTxGroupPPS != 0 || alpha.IPs != nil {
		t.Errorf("%+v", alpha)
	}
	if beta.AnyMAC || !beta.OwnMAC || beta.MACs != nil || !beta.TaggedOnly || !beta.SingleTag || beta.Share != "rack" ||
		beta.MaxTxGroupPPS != 2000 || len(beta.IPs) != 2 {
		t.Errorf("%+v", beta)
	}
	own := mac(t, "02:77:00:00:00:01")
	for _, tc := range []struct {
		host, mac     string
		may, reserved bool
	}{
		{"", "02:77:00:00:00:01", true, false}, {"", "06:00:00:00:00:01", true, false},
		{"", "02:aa:00:00:00:01", false, true}, {"", "02:aa:00:00:00:02", false, true},
		{"alpha", "02:77:00:00:00:01", true, false}, {"alpha", "02:aa:00:00:00:02", true, false},
		{"alpha", "02:aa:00:00:00:01", false, true}, {"alpha", "06:00:00:00:00:01", false, false},
		{"beta", "02:77:00:00:00:01", true, false}, {"beta", "06:00:00:00:00:01", false, false},
		{"gamma", "02:aa:00:00:00:01", true, false}, {"gamma", "02:aa:00:00:00:02", false, true},
		{"gamma", "02:77:00:00:00:01", false, false},
	} {
		h := p.For("", tc.host)
		if may, reserved := h.MayUse(mac(t, tc.mac), own), h.Reserved(mac(t, tc.mac)); may != tc.may ||
			reserved != tc.reserved {
			t.Errorf("host %q, %s: may use it %t, kept for others %t", tc.host, tc.mac, may, reserved)
		}
	}
}

// TestReserved compares the reserved addresses of random hosts with a search of the hosts' lists.
func TestReserved(t *testing.T) {
	hosts := make(map[string]*Host)
	random := rand.New(rand.NewPCG(1, 2))
	address := func() (m protocol.MAC) {
		for i := range m {
			m[i] = byte(random.IntN(2)) << 1
		}
		return m
	}
	for i := range 30 {
		h := &Host{entry: fmt.Sprint(i)}
		for range 3 {
			h.MACs = append(h.MACs, Pattern{n: 1 + random.IntN(6)})
			p := &h.MACs[len(h.MACs)-1]
			m := address()
			copy(p.addr[:p.n], m[:])
		}
		hosts[h.entry] = h
	}
	r := newReserved(hosts)
	for range 1000 {
		m, longest := address(), 0
		var owners []string
		for key, h := range hosts {
			for _, p := range h.MACs {
				if p.Matches(m) && p.n >= longest {
					if p.n > longest {
						longest, owners = p.n, nil
					}
					owners = append(owners, key)
				}
			}
		}
		for key := range hosts {
			if got, want := r.against(m, key), len(owners) > 0 && !slices.Contains(owners, key); got != want {
				t.Fatalf("%v is kept from %s: %t, is that of %q", m, key, got, owners)
			}
		}
	}
}

func TestParseIPs(t *testing.T) {
	for s, want := range map[string]string{
		"192.0.2.1": "192.0.2.1/32", "192.0.2.0/24": "192.0.2.0/24", "2001:db8::1": "2001:db8::1/128",
		"2001:db8::/32": "2001:db8::/32", "fe80::/64": "fe80::/64",
		"": "", "192.0.2": "", "192.0.2.1/24": "", "192.0.2.0/33": "", "fe80::1%eth0": "", "::ffff:192.0.2.1": "",
		"ff02::1": "", "224.0.0.0/4": "", "host": "",
	} {
		p, err := ParseIPs(s)
		if want == "" && err == nil || want != "" && (err != nil || p.String() != want) {
			t.Errorf("%q: %v, %v, want %q", s, p, err, want)
		}
	}
}

func TestPattern(t *testing.T) {
	m := mac(t, "06:05:04:03:02:01")
	for s, want := range map[string]string{"02:aa:*": "02:aa:04:03:02:01", "02:00:00:00:00:01": "02:00:00:00:00:01",
		"02:*": "02:05:04:03:02:01"} {
		p, err := ParsePattern(s)
		if err != nil || p.String() != s || p.Fit(m).String() != want || !p.Matches(p.Fit(m)) || p.Matches(m) {
			t.Errorf("%s: %v, fitted %v, %v", s, p, p.Fit(m), err)
		}
	}
}

func TestParseRate(t *testing.T) {
	for s, want := range map[string]int64{
		"100000": 1e5, "100k": 1e5, "100K": 1e5, "500M": 5e8, "500m": 5e8, "1G": 1e9, "1Gbit": 1e9, "100mbit": 1e8,
		"1T": 1e12, "2.5G": 25e8, "0.1M": 1e5, "100000bit": 1e5,
		"33.333333M": 33_333_333, ".5M": 5e5, "1.G": 1e9,
		"": -1, "M": -1, "99999": -1, "99k": -1, "0": -1, "-1G": -1, "1.1T": -1, "1e9": -1, "1Gi": -1, "1Gibit": -1,
		"1Gbps": -1, "1 G": -1, "1.2.3G": -1, "1GG": -1,
		"99999999999999999999999999G": -1, "0x10M": -1, "NaN": -1, "Inf": -1, "1_000k": -1, "unlimited": -1, ".G": -1,
	} {
		got, err := parseRate(s)
		if want < 0 && err == nil || want >= 0 && (err != nil || got != want) {
			t.Errorf("%q: %d, %v, want %d", s, got, err, want)
		}
	}
}

func TestParsePPS(t *testing.T) {
	for s, want := range map[string]int64{
		"100": 100, "1k": 1000, "1.5M": 1_500_000, "2m": 2_000_000, "1G": 1e9, "12345": 12345,
		"": -1, "99": -1, "1.1G": -1, "1kbit": -1, "1kpps": -1, "-1k": -1, "unlimited": -1, "1e3": -1, "k": -1, "1T": -1,
	} {
		got, err := parsePPS(s)
		if want < 0 && err == nil || want >= 0 && (err != nil || got != want) {
			t.Errorf("%q: %d, %v, want %d", s, got, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("default: {macs: any, ips: [192.0.2.0/24, \"2001:db8::1\"], share: rack, nested-tags: no, link-control: yes, require-bind: yes, max-tx-pps: 50k}")
	f.Add("hosts: {a: {macs: [own, \"02:aa:*\"], share: none}, " +
		"b: {macs: \"02:aa:00:00:00:01\", ips: any, max-rx-pps: unlimited}}")
	f.Add("default: {max-tx-group-pps: 1k}\nhosts: {a: {max-tx-group-pps: unlimited}, b: {max-tx-group-pps: 0.2M}}")
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
			if len(h.Modes) == 0 || h.MaxSessions < 1 || h.MaxMemory < 0 || h.MaxQueues < 0 || h.VLANs.Has(0) ||
				h.VLANs.Has(4095) {
				t.Errorf("%q: %+v", text, h)
			}
			if h.AnyMAC && !h.OwnMAC || !h.AnyMAC && !h.OwnMAC && len(h.MACs) == 0 || h.IPs != nil && len(h.IPs) == 0 {
				t.Errorf("%q: no address is left: %+v", text, h)
			}
			for _, m := range h.MACs {
				own := m.Fit(protocol.MAC{2, 1, 2, 3, 4, 5})
				if h.MayUse(own, own) == h.Reserved(own) {
					t.Errorf("%q: %v may be used, and is kept for others", text, own)
				}
			}
			for _, rate := range []int64{h.MaxTxPPS, h.MaxRxPPS, h.MaxTxGroupPPS} {
				if rate != 0 && (rate < MinPPS || rate > MaxPPS) {
					t.Errorf("%q: %d packets per second", text, rate)
				}
			}
			for _, rate := range []int64{h.MaxTxRate, h.MaxRxRate} {
				if rate != 0 && (rate < MinRate || rate > MaxRate) {
					t.Errorf("%q: a rate of %d", text, rate)
				}
			}
		}
	})
}
