package tap

import (
	"encoding/binary"
	"net"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// attribute returns an attribute of a netlink message, padded.
func attribute(kind uint16, value ...byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(unix.SizeofRtAttr+len(value)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = append(b, value...)
	for len(b)%unix.RTA_ALIGNTO != 0 {
		b = append(b, 0)
	}
	return b
}

// FuzzLink fuzzes the decoder of the kernel's messages about netdevices. Malformed messages, and
// messages of later kernels, must not cause a panic or invented values.
func FuzzLink(f *testing.F) {
	head := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(head[4:], 7)
	add := func(attributes ...[]byte) {
		b := append([]byte(nil), head...)
		for _, a := range attributes {
			b = append(b, a...)
		}
		f.Add(b)
	}
	add()
	add(attribute(unix.IFLA_ADDRESS, 2, 0, 0, 0, 0, 1), attribute(unix.IFLA_MTU, 0xdc, 5, 0, 0),
		attribute(unix.IFLA_PROMISCUITY, 1, 0, 0, 0))
	vlan := append(attribute(unix.IFLA_INFO_KIND, []byte("vlan\x00")...),
		attribute(unix.IFLA_INFO_DATA, attribute(unix.IFLA_VLAN_ID, 5, 0)...)...)
	add(attribute(unix.IFLA_LINK, 3, 0, 0, 0), attribute(unix.IFLA_LINK_NETNSID, 1, 0, 0, 0),
		attribute(unix.IFLA_LINKINFO, vlan...))
	add([]byte{2, 0, 1, 0}, []byte{255, 255, 1, 0})
	f.Fuzz(func(t *testing.T, msg []byte) {
		l, err := parseLink(msg)
		if err == nil && (len(msg) < unix.SizeofIfInfomsg || len(l.mac) > len(msg) || len(l.kind) > len(msg)) {
			t.Errorf("%x is %+v", msg, l)
		}
	})
}

// FuzzGlance fuzzes the decoder of the kernel's answers to a glance. Malformed answers must not
// cause a panic, and a truncated message must not be taken for the end of the answers.
func FuzzGlance(f *testing.F) {
	message := func(kind uint16, seq uint32, body ...[]byte) []byte {
		b := make([]byte, unix.SizeofNlMsghdr)
		for _, part := range body {
			b = append(b, part...)
		}
		binary.NativeEndian.PutUint32(b, uint32(len(b)))
		binary.NativeEndian.PutUint16(b[4:], kind)
		binary.NativeEndian.PutUint32(b[8:], seq)
		return b
	}
	old := digest{index: 7, promisc: 1, unicast: []net.HardwareAddr{{2, 0, 0, 0, 0, 1}}}
	link := message(unix.RTM_NEWLINK, 1, make([]byte, unix.SizeofIfInfomsg), attribute(unix.IFLA_PROMISCUITY, 1, 0, 0, 0))
	neigh := make([]byte, ndmsgSize)
	binary.NativeEndian.PutUint32(neigh[4:], 7)
	neigh[10] = unix.NTF_SELF
	addr := message(unix.RTM_NEWNEIGH, 2, neigh, attribute(attrLLAddr, 2, 0, 0, 0, 0, 1))
	done := message(unix.NLMSG_DONE, 2, make([]byte, 4))
	all := slices.Concat(link, addr, done)
	g := glance{old: &old, link: 1, addrs: 2}
	if !g.compare(all) || !g.linked || !g.ended || g.found != 1 {
		f.Errorf("%+v", g)
	}
	for n := range all {
		f.Add(all[:n])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		g := glance{old: &old, link: 1, addrs: 2}
		if g.compare(b) && g.ended && len(b) < unix.SizeofNlMsghdr {
			t.Errorf("%x is an end", b)
		}
	})
}

// FuzzMulticast fuzzes the decoder of the kernel's list of multicast groups.
func FuzzMulticast(f *testing.F) {
	f.Add([]byte("7    sn0             1     0     01005e000001\n7    sn0             1     0     333300000001\n"), 7)
	f.Add([]byte("7 sn0 x 0 01005e000001\n7 sn0 1 0 01005e\n8 x 1 0 01005e000001\n7\n"), 7)
	f.Fuzz(func(t *testing.T, file []byte, index int) {
		groups, _ := parseMulticast(file, index)
		for _, g := range groups {
			if len(g) != 6 {
				t.Errorf("%q has the group %v", file, g)
			}
		}
	})
}
