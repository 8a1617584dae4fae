package tap

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"syscall"

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
	attrs, err := attributes(msg[unix.SizeofIfInfomsg:])
	if err != nil {
		return link{}, err
	}
	for _, a := range attrs {
		number := uint32(0)
		if len(a.Value) >= 4 {
			number = binary.NativeEndian.Uint32(a.Value)
		}
		switch a.Attr.Type {
		case unix.IFLA_ADDRESS:
			l.mac = bytes.Clone(a.Value)
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
			if err := l.parseInfo(a.Value); err != nil {
				return link{}, err
			}
		}
	}
	return l, nil
}

// attributes parses a list of attributes. It adds the padding after the last one if there is
// none, because nl.ParseRouteAttr reads it without a check.
func attributes(b []byte) ([]syscall.NetlinkRouteAttr, error) {
	if pad := -len(b) & (unix.RTA_ALIGNTO - 1); pad > 0 {
		b = append(slices.Clip(b), make([]byte, pad)...)
	}
	return nl.ParseRouteAttr(b)
}

// parseInfo parses IFLA_LINKINFO.
func (l *link) parseInfo(b []byte) error {
	attrs, err := attributes(b)
	if err != nil {
		return err
	}
	for _, a := range attrs {
		switch a.Attr.Type {
		case nl.IFLA_INFO_KIND:
			l.kind = unix.ByteSliceToString(a.Value)
		case nl.IFLA_INFO_DATA:
			if l.kind != "vlan" {
				continue
			}
			data, err := attributes(a.Value)
			if err != nil {
				return err
			}
			for _, v := range data {
				if v.Attr.Type == nl.IFLA_VLAN_ID && len(v.Value) >= 2 {
					l.vlan = int(binary.NativeEndian.Uint16(v.Value))
				}
			}
		}
	}
	return nil
}

var errShort = errors.New("a short message from the kernel")
