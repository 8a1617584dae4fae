package tap

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// link has the attributes of one netdevice, as the kernel reports them.
type link struct {
	index             int
	flags             uint32
	mac               net.HardwareAddr
	mtu               uint32
	promisc, allmulti uint32 // number of users
	master            uint32
	lower             uint32 // index of the device that it is stacked on; 0 for none
	lowerElsewhere    bool   // lower is in another namespace, lowerNS
	lowerNS           int32  // identifier of that namespace
	kind              string
	vlan              int
}

// parseLink parses the body of an RTM_NEWLINK or RTM_DELLINK.
func parseLink(msg []byte) (link, error) {
	if len(msg) < unix.SizeofIfInfomsg {
		return link{}, errShort
	}
	info := nl.DeserializeIfInfomsg(msg)
	l := link{index: int(info.Index), flags: info.Flags}
	infos := true
	ok := eachAttribute(msg[unix.SizeofIfInfomsg:], func(kind uint16, value []byte) {
		number := uint32(0)
		if len(value) >= 4 {
			number = binary.NativeEndian.Uint32(value)
		}
		switch kind {
		case unix.IFLA_ADDRESS:
			l.mac = bytes.Clone(value)
		case unix.IFLA_MTU:
			l.mtu = number
		case unix.IFLA_PROMISCUITY:
			l.promisc = number
		case unix.IFLA_ALLMULTI:
			l.allmulti = number
		case unix.IFLA_MASTER:
			l.master = number
		case unix.IFLA_LINK:
			l.lower = number
		case unix.IFLA_LINK_NETNSID:
			l.lowerElsewhere, l.lowerNS = true, int32(number)
		case unix.IFLA_LINKINFO:
			infos = infos && l.parseInfo(value)
		}
	})
	if !ok || !infos {
		return link{}, errShort
	}
	return l, nil
}

// parseInfo parses IFLA_LINKINFO, and reports whether it is well formed.
func (l *link) parseInfo(b []byte) bool {
	data := true
	ok := eachAttribute(b, func(kind uint16, value []byte) {
		switch {
		case kind == nl.IFLA_INFO_KIND:
			l.kind = unix.ByteSliceToString(value)
		case kind == nl.IFLA_INFO_DATA && l.kind == "vlan":
			data = eachAttribute(value, func(kind uint16, value []byte) {
				if kind == nl.IFLA_VLAN_ID && len(value) >= 2 {
					l.vlan = int(binary.NativeEndian.Uint16(value))
				}
			})
		}
	})
	return ok && data
}

var errShort = errors.New("a short message from the kernel")

// eachAttribute calls fn with each attribute of a list, and reports whether the list is well
// formed.
func eachAttribute(b []byte, fn func(kind uint16, value []byte)) bool {
	for len(b) >= unix.SizeofRtAttr {
		size := int(binary.NativeEndian.Uint16(b))
		if size < unix.SizeofRtAttr || size > len(b) {
			return false
		}
		fn(binary.NativeEndian.Uint16(b[2:]), b[unix.SizeofRtAttr:size])
		b = b[min(align(size), len(b)):]
	}
	return true
}

func align(n int) int { return (n + unix.NLMSG_ALIGNTO - 1) &^ (unix.NLMSG_ALIGNTO - 1) }
