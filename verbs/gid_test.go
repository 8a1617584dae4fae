package verbs

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
)

func gid(index int, typ GIDType, addr, netdev string) GIDEntry {
	p := netip.MustParsePrefix(addr)
	return GIDEntry{
		Index: index, Port: 1, Type: typ, GID: p.Addr().As16(), NetdevIndex: 7, Netdev: netdev, NetdevPrefix: p.Masked(),
	}
}

func TestChooseGID(t *testing.T) {
	eth := PortAttr{Port: 1, LinkLayer: LinkEthernet}
	ib := PortAttr{Port: 1, LinkLayer: LinkInfiniBand, LID: 9}
	const v1, v2 = GIDTypeRoCEv1, GIDTypeRoCEv2
	// full is in the order of a ConnectX: v1 and v2 of each address.
	full := []GIDEntry{
		gid(0, v1, "fe80::1/64", "eth0"),
		gid(1, v2, "fe80::1/64", "eth0"),
		gid(2, v1, "2001:db8::1/64", "eth0"),
		gid(3, v2, "2001:db8::1/64", "eth0"),
		gid(4, v1, "10.0.0.1/24", "eth0"),
		gid(5, v2, "10.0.0.1/24", "eth0"),
		gid(6, v2, "192.168.7.1/24", "eth0.7"),
	}
	// turned has the same entries in reverse order, with the indices of another driver.
	turned := make([]GIDEntry, len(full))
	for i, e := range full {
		e.Index = len(full) - i
		turned[len(full)-1-i] = e
	}
	otherPort := full[5]
	otherPort.Port = 2
	farOff := full[5]
	farOff.Index = 256
	last := full[5]
	last.Index = 255
	peer := func(s string) GIDHint { return GIDHint{Peer: netip.MustParseAddr(s)} }
	for _, c := range []struct {
		name  string
		port  PortAttr
		table []GIDEntry
		hint  GIDHint
		want  string // address of the chosen GID; empty: none is chosen
		typ   GIDType
		why   string
	}{
		{"v2 and IPv4", eth, full, GIDHint{}, "10.0.0.1", v2, "IPv4"},
		{"whatever the index", eth, turned, GIDHint{}, "192.168.7.1", v2, "IPv4"},
		{"peer's subnet", eth, full, peer("192.168.7.9"), "192.168.7.1", v2, "same subnet as 192.168.7.9"},
		{"peer's subnet, turned", eth, turned, peer("10.0.0.77"), "10.0.0.1", v2, "same subnet"},
		{"peer as a mapped address", eth, turned, peer("::ffff:10.0.0.77"), "10.0.0.1", v2, "same subnet"},
		{"peer far away", eth, full, peer("203.0.113.5"), "10.0.0.1", v2, "same address family"},
		{"IPv6 peer far away", eth, full, peer("2001:db8:1::5"), "2001:db8::1", v2, "same address family"},
		{"subnet before family", eth,
			[]GIDEntry{gid(1, v2, "169.254.3.1/24", "eth0"), gid(2, v2, "169.1.0.1/8", "eth0")},
			peer("169.254.9.9"), "169.1.0.1", v2, "same subnet"},
		{"IPv4 before link-local IPv4", eth,
			[]GIDEntry{gid(1, v2, "169.254.3.1/16", "eth0"), gid(2, v2, "10.0.0.1/24", "eth0")},
			peer("203.0.113.5"), "10.0.0.1", v2, "same address family"},
		{"link-local peer", eth, full, peer("fe80::99%eth0"), "fe80::1", v2, "same subnet"},
		{"netdevice", eth, full, GIDHint{Netdev: "eth0.7"}, "192.168.7.1", v2, "netdevice asked for"},
		{"netdevice before subnet", eth, full, GIDHint{Netdev: "eth0.7", Peer: netip.MustParseAddr("10.0.0.2")},
			"192.168.7.1", v2, "same address family"},
		{"unknown netdevice", eth, full, GIDHint{Netdev: "eth9"}, "", 0, "nothing of netdevice eth9"},
		{"global IPv6 before link-local", eth, full[:4], GIDHint{}, "2001:db8::1", v2, "global IPv6"},
		{"link-local alone", eth, full[:2], GIDHint{}, "fe80::1", v2, "no other address"},
		{"v2 link-local before v1 IPv4", eth, []GIDEntry{full[1], full[4]}, GIDHint{}, "fe80::1", v2, "RoCE v2"},
		{"v1 alone", eth, full[4:5], GIDHint{}, "10.0.0.1", v1, "RoCE v1"},
		{"only the other family", eth, full[2:4], peer("10.0.0.2"), "2001:db8::1", v2, "another address family"},
		{"other port", eth, []GIDEntry{otherPort, full[1]}, GIDHint{}, "fe80::1", v2, ""},
		{"index over 8 bits", eth, []GIDEntry{farOff, full[1]}, GIDHint{}, "fe80::1", v2, ""},
		{"largest index", eth, []GIDEntry{last, full[1]}, GIDHint{}, "10.0.0.1", v2, ""},
		{"empty slots", eth, []GIDEntry{{Index: 0, Port: 1, Type: v2}}, GIDHint{}, "", 0, "no usable GID"},
		{"empty table", eth, nil, GIDHint{}, "", 0, "table is empty"},
		{"InfiniBand", ib, []GIDEntry{{Index: 1, Port: 1, GID: GID{0: 0xfe, 15: 2}},
			{Index: 0, Port: 1, GID: GID{0: 0xfe, 15: 1}}}, GIDHint{}, "fe00::1", GIDTypeIB, "LID 0x9"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, why, err := chooseGID(c.port, c.table, c.hint)
			if c.want == "" {
				if !errors.Is(err, ErrNoGID) || !strings.Contains(err.Error(), c.why) {
					t.Fatalf("%v, %v", e, err)
				}
				return
			}
			if err != nil || e.GID.Addr().String() != c.want || e.Type != c.typ || !strings.Contains(why, c.why) {
				t.Fatalf("chose %v: %s, %v", e, why, err)
			}
		})
	}
}

// TestChooseGIDReason expects a reason that names each entry of the table exactly once.
func TestChooseGIDReason(t *testing.T) {
	table := []GIDEntry{
		gid(3, GIDTypeRoCEv2, "10.0.0.1/24", "eth0"),
		gid(0, GIDTypeRoCEv1, "10.0.0.1/24", "eth0"),
		gid(1, GIDTypeRoCEv2, "10.0.1.1/24", "eth1"),
	}
	e, why, err := chooseGID(PortAttr{Port: 1, LinkLayer: LinkEthernet}, table, GIDHint{})
	if err != nil || e.Index != 1 {
		t.Fatalf("chose %v, %v", e, err)
	}
	for _, s := range []string{"index 0:", "index 1:", "index 3:"} {
		if strings.Count(why, s) != 1 {
			t.Errorf("%q is not once in %q", s, why)
		}
	}
}
