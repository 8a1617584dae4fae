package guard

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/iounit/policy"
	"github.com/splitnic/splitnic/vnet"
)

// judged writes a frame to a port of a host and returns the verdict, as counted.
func judged(t *testing.T, h *policy.Host, f []byte) verdict {
	t.Helper()
	p, q := newPoliced(h)
	if err := p.WriteFrame(f); err != nil {
		t.Fatal(err)
	}
	var s protocol.Statistics
	var d Dropped
	p.count(&s, &d)
	for v, n := range map[verdict]uint64{
		source: s.TxSource, vlan: s.TxVLAN, nested: d.NestedTags, linkControl: d.LinkControl, ipSource: d.IPSource,
		tiny:      d.TinySegments,
		groupRate: d.GroupRate,
	} {
		if n > 0 {
			if n != 1 || len(q.Out) > 0 || s.TxFrames > 0 || len(p.refused.List()) != 1 {
				t.Errorf("verdict %d: %+v, %+v, %d frames written, because %q", v, s, d, len(q.Out), p.refused.List())
			}
			return v
		}
	}
	if len(q.Out) != 1 || s.TxFrames != 1 || len(p.refused.List()) != 0 {
		t.Errorf("%+v, %d frames written", s, len(q.Out))
	}
	return pass
}

func TestLinkControl(t *testing.T) {
	for _, tc := range []struct {
		name string
		dst  [6]byte
		rest string
		want verdict
	}{
		{"PAUSE", [6]byte{1, 0x80, 0xc2, 0, 0, 1}, "8808 0001 ffff", linkControl},
		{"PAUSE to a station", machine, "8808 0001 ffff", linkControl},
		{"PAUSE in a VLAN", machine, "8100 0005 8808 0001 ffff", linkControl},
		{"PAUSE in three VLANs", machine, "88a8 0005 8100 0006 9200 0007 8808 0001 ffff", linkControl},
		{"PAUSE with a priority", machine, "8100 e000 8808 0001 ffff", linkControl},
		{"BPDU", [6]byte{1, 0x80, 0xc2, 0, 0, 0}, "0026 424203 0000", linkControl},
		{"LACP", [6]byte{1, 0x80, 0xc2, 0, 0, 2}, "8809 01", linkControl},
		{"EAPOL logoff", [6]byte{1, 0x80, 0xc2, 0, 0, 3}, "888e 0202 0000", linkControl},
		{"EAPOL to the switch's address", card, "888e 0202 0000", linkControl},
		{"LLDP", [6]byte{1, 0x80, 0xc2, 0, 0, 0xe}, "88cc 02", linkControl},
		{"the last such group", [6]byte{1, 0x80, 0xc2, 0, 0, 0xf}, "88b5", linkControl},
		{"the next group", [6]byte{1, 0x80, 0xc2, 0, 0, 0x10}, "88b5", pass},
		{"the group before", [6]byte{1, 0x80, 0xc1, 0xff, 0xff, 0xff}, "88b5", pass},
		{"the last group before registration", [6]byte{1, 0x80, 0xc2, 0, 0, 0x1f}, "88b5", pass},
		{"MMRP", [6]byte{1, 0x80, 0xc2, 0, 0, 0x20}, "88f6 00", linkControl},
		{"MVRP", [6]byte{1, 0x80, 0xc2, 0, 0, 0x21}, "88f5 00", linkControl},
		{"GVRP", [6]byte{1, 0x80, 0xc2, 0, 0, 0x21}, "0026 424203 0001", linkControl},
		{"MVRP to a station", machine, "88f5 00", linkControl},
		{"MMRP in a VLAN", machine, "8100 0005 88f6 00", linkControl},
		{"CFM", [6]byte{1, 0x80, 0xc2, 0, 0, 0x30}, "8902 00", linkControl},
		{"CFM to a station", machine, "8902 60", linkControl},
		{"the last group of CFM", [6]byte{1, 0x80, 0xc2, 0, 0, 0x3f}, "88b5", linkControl},
		{"the group behind CFM", [6]byte{1, 0x80, 0xc2, 0, 0, 0x40}, "88b5", pass},
		{"CGMP", [6]byte{1, 0, 0xc, 0xdd, 0xdd, 0xdd}, "002a aaaa03 00000c 2001", linkControl},
		{"beside CGMP", [6]byte{1, 0, 0xc, 0xdd, 0xdd, 0xde}, "002a aaaa03 00000c 2001", pass},
		{"CDP", [6]byte{1, 0, 0xc, 0xcc, 0xcc, 0xcc}, "0026 aaaa03", linkControl},
		{"PVST", [6]byte{1, 0, 0xc, 0xcc, 0xcc, 0xcd}, "8100 0005 0026 aaaa03", linkControl},
		{"beside Cisco's", [6]byte{1, 0, 0xc, 0xcc, 0xcc, 0xce}, "0026 aaaa03", pass},
		{"IPv4", machine, "0800 4500", pass},
		{"something else in a VLAN", machine, "8100 0005 88b5", pass},
		{"nothing behind the tag", machine, "8100 0005", pass},
	} {
		h := *policy.Default().For("", "")
		if got := judged(t, &h, etherFrame(tc.dst, tc.rest)); got != tc.want {
			t.Errorf("%s: verdict %d, want %d", tc.name, got, tc.want)
		}
		h.LinkControl = true
		if got := judged(t, &h, etherFrame(tc.dst, tc.rest)); got != pass {
			t.Errorf("%s, allowed: verdict %d", tc.name, got)
		}
	}
}

func TestNestedTags(t *testing.T) {
	for _, tc := range []struct {
		name, rest   string
		one, fromLAN verdict
	}{
		{"none", "0800 4500", pass, pass},
		{"one", "8100 000a 0800", pass, pass},
		{"a service tag", "88a8 000a 0800", pass, pass},
		{"VLAN 20 in 10", "8100 000a 8100 0014 0800", nested, filtered},
		{"QinQ", "88a8 000a 8100 0014 0800", nested, filtered},
		{"old QinQ", "9100 000a 8100 0014 0800", nested, filtered},
		{"a tag that is none here, in 10", "8100 000a 9200 0014 0800", nested, filtered},
		{"a tag that is none here", "9200 0014 0800", nested, filtered},
		{"another one", "9300 0014 0800", nested, filtered},
		{"a priority and a tag", "8100 e000 8100 000a 0800", nested, filtered},
		{"a service of a backbone", "88e7 0000 0014", nested, filtered},
		{"an extension of a bridge", "893f 0000 0014", nested, filtered},
		{"a tag of a virtual interface", "8926 0000 0014", nested, filtered},
	} {
		h := hostWith("10")
		f := etherFrame(machine, tc.rest)
		if got := judged(t, h, f); got != pass {
			t.Errorf("%s, allowed: verdict %d", tc.name, got)
		}
		h.SingleTag = true
		if got := judged(t, h, f); got != tc.one {
			t.Errorf("%s: verdict %d, want %d", tc.name, got, tc.one)
		}
		if got := (&Rules{Host: h, Every: true, Receive: h.VLANs}).fromLAN(f); got != tc.fromLAN {
			t.Errorf("%s, from the LAN: verdict %d, want %d", tc.name, got, tc.fromLAN)
		}
	}
}

// TestTaggedOnly checks that only frames in a VLAN pass.
func TestTaggedOnly(t *testing.T) {
	for _, tc := range []struct {
		name, rest     string
		toLAN, fromLAN verdict
	}{
		{"no tag", "0800 4500", vlan, filtered},
		{"a priority alone", "8100 e000 0800", vlan, filtered},
		{"a VLAN", "8100 000a 0800", pass, pass},
		{"a priority and a VLAN", "8100 e000 8100 000a 0800", pass, pass},
		{"another VLAN", "8100 0014 0800", vlan, filtered},
	} {
		h := hostWith("10")
		h.TaggedOnly = true
		f := etherFrame(machine, tc.rest)
		if got := judged(t, h, f); got != tc.toLAN {
			t.Errorf("%s: verdict %d, want %d", tc.name, got, tc.toLAN)
		}
		if got := (&Rules{Host: h, Every: true, Receive: h.VLANs}).fromLAN(f); got != tc.fromLAN {
			t.Errorf("%s, from the LAN: verdict %d, want %d", tc.name, got, tc.fromLAN)
		}
	}
}

func TestTinySegments(t *testing.T) {
	for size, want := range map[int]verdict{1: tiny, 8: tiny, 47: tiny, 48: pass, 1448: pass} {
		if got := judged(t, hostWith("all"), superFrame(60000, size)); got != want {
			t.Errorf("segments of %d bytes: verdict %d, want %d", size, got, want)
		}
	}
}

// hostIPs returns the parsed addresses and prefixes.
func hostIPs(t *testing.T, texts ...string) (ips []netip.Prefix) {
	t.Helper()
	for _, s := range texts {
		p, err := policy.ParseIPs(s)
		if err != nil {
			t.Fatal(err)
		}
		ips = append(ips, p)
	}
	return ips
}

func TestIPSource(t *testing.T) {
	h := hostWith("all")
	h.IPs = hostIPs(t, "192.0.2.10", "198.51.100.0/24", "2001:db8::a", "2001:db8:1::/64")
	const (
		ip4  = "0800 4500 0014 0000 0000 40%s 0000 "
		arp  = "0806 0001 0800 0604 0001 "
		mine = "020000000001 "
		a    = "20010db8 00000000 00000000 0000000a"
		gw   = "20010db8 00000000 00000000 00000001"
		none = "00000000 00000000 00000000 00000000"
		ll   = "fe800000 00000000 000000ff fe000001"
		gwll = "fe800000 00000000 00000000 00000001"
		all  = "ff020000 00000000 00000000 00000001"
	)
	v4 := func(proto, from, to string) string { return strings.Replace(ip4, "%s", proto, 1) + from + to }
	v6 := func(next, from, rest string) string { return "86dd 60000000 0020 " + next + " ff " + from + all + rest }
	icmp := func(kind, target string) string { return kind + "00 0000 00000000" + target }
	for _, tc := range []struct {
		name, rest string
		want       verdict
	}{
		{"own address", v4("11", "c000020a", "c0000201"), pass},
		{"of the prefix", v4("06", "c63364ff", "c0000201"), pass},
		{"the gateway's", v4("06", "c0000201", "c000020a"), ipSource},
		{"in a VLAN", "8100 0005 " + v4("06", "c0000201", "c000020a"), ipSource},
		{"own address in VLANs", "88a8 0005 8100 0006 " + v4("06", "c000020a", "c0000201"), pass},
		{"DHCP", v4("11", "00000000", "ffffffff"), pass},
		{"not DHCP", v4("06", "00000000", "ffffffff"), ipSource},
		{"not to all", v4("11", "00000000", "c0000201"), ipSource},
		{"version 6 in IPv4", "0800 6500 0014 0000 0000 4011 0000 c000020a c0000201", ipSource},
		{"IPv4 that is cut off", "8100 0005 8100 0005 8100 0005 8100 0005 8100 0005 8100 0005 8100 0005 0800 4500 0014 0000 0000 40", ipSource},
		{"ARP", arp + mine + "c000020a 000000000000 c0000201", pass},
		{"ARP probe", arp + mine + "00000000 000000000000 c000020a", pass},
		{"ARP of the gateway", arp + mine + "c0000201 000000000000 c000020a", ipSource},
		{"ARP of another card", arp + "020000000002 c000020a 000000000000 c0000201", ipSource},
		{"ARP of something else", "0806 0006 0800 0604 0001 " + mine + "c000020a 000000000000 c0000201", ipSource},
		{"RARP", "8035 0001 0800 0604 0003 " + mine + "00000000" + mine + "00000000", pass},
		{"another protocol", "8864 1100 0001 0016 0021 4500", ipSource},
		{"LLC", "0026 aaaa03 000000 0800 4500", ipSource},
		{"no protocol", strings.Repeat("8100 0005 ", 60), ipSource},
		{"IPv6", v6("11", a, ""), pass},
		{"IPv6 of the prefix", v6("06", "20010db8 00010000 12345678 9abcdef0", ""), pass},
		{"IPv6 of the gateway", v6("06", gw, ""), ipSource},
		{"IPv6 link-local", v6("11", ll, ""), pass},
		{"IPv6 link-local of the gateway", v6("11", gwll, ""), ipSource},
		{"IPv6 from nowhere", v6("11", none, ""), ipSource},
		{"version 4 in IPv6", "86dd 40000000 0020 11 ff" + a + all, ipSource},
		{"echo", v6("3a", a, icmp("80", "")), pass},
		{"asking for the gateway", v6("3a", a, icmp("87", gw)), pass},
		{"duplicate address detection", v6("3a", none, icmp("87", a)), pass},
		{"duplicate address detection, link-local", v6("3a", none, icmp("87", ll)), pass},
		{"denying the gateway its address", v6("3a", none, icmp("87", gw)), ipSource},
		{"advertisement", v6("3a", a, icmp("88", a)), pass},
		{"advertisement of the gateway", v6("3a", a, icmp("88", gw)), ipSource},
		{"advertisement behind options", v6("00", a, "3c00 000000000000 3a00 000000000000"+icmp("88", gw)), ipSource},
		{"advertisement in a first fragment", v6("2c", a, "3a00 0001 00000001"+icmp("88", gw)), ipSource},
		{"own advertisement behind routing", v6("2b", a, "3a00 000000000000"+icmp("88", a)), pass},
		{"a later fragment", v6("2c", a, "3a00 0009 00000001"+icmp("88", gw)), pass},
		{"router advertisement", v6("3a", ll, icmp("86", "")), ipSource},
		{"redirect", v6("3a", ll, icmp("89", gw+gw)), ipSource},
		{"MLD", v6("00", none, "3a00 050200000000 8f00"), pass},
		{"ICMPv6 in the next fragment", v6("2c", a, "3a00 0001 00000001"), ipSource},
		{"options that do not end", v6("3c", a, "3aff 00"), ipSource},
		{"nothing but options", v6("3c", a, strings.Repeat("3c00 000000000000", 9)+"3a00 000000000000"), ipSource},
	} {
		f := etherFrame(machine, tc.rest)
		if got := judged(t, h, f); got != tc.want {
			t.Errorf("%s: verdict %d, want %d", tc.name, got, tc.want)
		}
		if got := judged(t, hostWith("all"), f); got != pass {
			t.Errorf("%s, without a list: verdict %d", tc.name, got)
		}
	}
	// Headers beyond the copied beginning cannot be checked, so the frame must be dropped.
	long := etherFrame(machine, v6("3c", a, "3a18"+strings.Repeat("00", 198)+icmp("88", a)))
	if got := judged(t, h, long); got != ipSource {
		t.Errorf("a message behind the copy: verdict %d", got)
	}
	short := etherFrame(machine, v6("3a", a, icmp("88", a)))
	if got := judged(t, h, short[:vnet.HdrLen+14+40+20]); got != ipSource {
		t.Errorf("a target that is cut off: verdict %d", got)
	}
}

// TestDefaultSource has a host without a policy of its own send from foreign addresses. Only its own
// address may pass.
func TestDefaultSource(t *testing.T) {
	h := policy.Default().For("", "")
	for src, want := range map[protocol.MAC]verdict{own: pass, machine: source, other: source, card: source} {
		f := etherFrame(Broadcast, "88b5")
		copy(f[srcAt:], src[:])
		if got := judged(t, h, f); got != want {
			t.Errorf("%v: verdict %d, want %d", src, got, want)
		}
	}
}

func FuzzLayers(f *testing.F) {
	f.Add(etherFrame(machine, "88a8 0005 8100 0006 0800 4500 0014 0000 0000 4006 0000 c000020a c0000201"))
	f.Add(etherFrame(machine, "86dd 60000000 0020 00 ff 20010db8000000000000000000000001 20010db8000000000000000000000002 3a00 000000000000 8800"))
	f.Add(etherFrame(machine, "0806 0001 0800 0604 0001 020000000001 c000020a 000000000000 c0000201"))
	f.Add(superFrame(100, 10))
	h := hostWith("all")
	h.IPs = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/64")}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < vnet.MinFrame || len(b) > vnet.MaxFrame {
			return
		}
		l := vnet.LayersOf(b)
		if l.Proto != 0 && (l.At > len(b) || binary.BigEndian.Uint16(b[l.At-2:]) != l.Proto) ||
			l.Tags > 0 && l.At == typeAt+2 && l.Proto < 0x8800 {
			t.Errorf("%+v", l)
		}
		head := b[:min(len(b), headSize)]
		r := Rules{MAC: own, Host: h, Every: true, Receive: h.VLANs}
		if r.toLAN(head, len(b), new(protocol.MACSet)) == pass && l.At <= len(head) && l.Proto == vnet.EtherIPv4 {
			from := netip.AddrFrom4([4]byte(head[l.At+12:]))
			if !h.IPs[0].Contains(from) && !from.IsUnspecified() {
				t.Errorf("a packet from %v passes", from)
			}
		}
		r.fromLAN(b)
		frameCost(head, len(b))
	})
}

// TestStrictAllocs counts the allocations for a host whose frames are checked for everything.
func TestStrictAllocs(t *testing.T) {
	h := hostWith("all", "02:*")
	h.SingleTag, h.IPs = true, []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"),
		netip.MustParsePrefix("2001:db8::/64")}
	p, q := newPoliced(h)
	q.Quiet = true
	clock := &hand{}
	p.rules.Load().tx = newBucket(bounds{bits: policy.MaxRate, packets: policy.MaxPPS}, clock.now)
	p.rules.Load().toGroups = newBucket(bounds{packets: policy.MinPPS}, clock.now)
	p.rules.Load().toGroups.save()
	toGroup := etherFrame(wanted, "0806 0001 0800 0604 0001 020000000001 c000020a 000000000000 c0000201")
	frames := [][]byte{
		superFrame(60000, 1448), superFrame(60000, 1), etherFrame(machine, "88cc"),
		etherFrame(machine, "8100 0005 8100 0006 0800"),
		etherFrame(machine, "86dd 60000000 0020 3a ff 20010db8000000000000000000000001 20010db8000000000000000000000002 8800 0000 00000000 20010db8000000000000000000000001"),
		etherFrame(machine, "0806 0001 0800 0604 0001 020000000001 c000020a 000000000000 c0000201"),
	}
	// A few of these pass, and most are above the limit.
	frames = append(frames, slices.Repeat([][]byte{toGroup}, 2*policy.MinPPS)...)
	ops := make([]vnet.WriteOp, 0, len(frames))
	for _, f := range frames {
		ops = append(ops, vnet.WriteOp{Head: f})
	}
	p.WriteFrames(slices.Clone(ops)) // the first drop for each reason is recorded
	if n := testing.AllocsPerRun(100, func() {
		clock.at += time.Second
		if p.WriteFrames(ops) != len(ops) {
			t.Error("held back")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
