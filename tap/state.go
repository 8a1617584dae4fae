package tap

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// ErrGone is wrapped by errors about a device that somebody has deleted.
var ErrGone = errors.New("the TAP device was deleted")

// State is what the operating system wants of a device as of a network card:
// what an administrator has set, and what programs, addresses and devices
// stacked on it need.
type State struct {
	Up  bool // administratively
	MAC net.HardwareAddr
	MTU int // bytes

	// Promisc and AllMulti say whether anybody wants all frames, or all
	// multicast ones: an administrator, a packet socket such as tcpdump's, a
	// bridge.
	Promisc, AllMulti bool
	// PromiscSet and AllMultiSet say whether it is the device's own setting,
	// which SetPromisc and SetAllMulti change.
	PromiscSet, AllMultiSet bool

	Unicast   []net.HardwareAddr // wanted besides MAC; in order
	Multicast []net.HardwareAddr // groups joined; in order

	// VLANs are the identifiers, in order, of the VLAN devices stacked on the
	// device: of those in its network namespace, and in the ones that this has
	// an identifier for, as it has when a VLAN device is moved from it to a
	// container.
	VLANs []int
	// Trunk says that something is stacked on the device that may use any
	// VLAN: a bridge or another master, a macvlan, or what cannot be seen from
	// the device's network namespace.
	Trunk bool
}

// Equal reports whether s and o are the same.
func (s State) Equal(o State) bool {
	same := func(a, b net.HardwareAddr) bool { return bytes.Equal(a, b) }
	return s.Up == o.Up && bytes.Equal(s.MAC, o.MAC) && s.MTU == o.MTU &&
		s.Promisc == o.Promisc && s.AllMulti == o.AllMulti &&
		s.PromiscSet == o.PromiscSet && s.AllMultiSet == o.AllMultiSet &&
		slices.EqualFunc(s.Unicast, o.Unicast, same) && slices.EqualFunc(s.Multicast, o.Multicast, same) &&
		slices.Equal(s.VLANs, o.VLANs) && s.Trunk == o.Trunk
}

// State reads the device's state from the kernel. When the device was deleted
// the error wraps ErrGone.
func (d *Device) State() (State, error) {
	var s State
	err := d.do("reading the state", func() error {
		_, err := d.read(&s)
		d.strayed = d.strayed || err == nil && !s.Equal(d.reported)
		return err
	})
	if err != nil {
		return State{}, err
	}
	return s, nil
}

// read fills s in, and returns the digest of what it found.
func (d *Device) read(s *State) (digest, error) {
	for try := 0; ; try++ {
		name, err := d.locate()
		if err != nil {
			return digest{}, err
		}
		l, err := d.location.link(name)
		if errors.Is(err, unix.ENODEV) && try < 3 {
			continue // it was renamed, or moved, in between
		}
		if err != nil {
			return digest{}, fmt.Errorf("asking for device %s: %w", name, err)
		}
		lists, err := d.location.lists(&l, true)
		if err != nil {
			return digest{}, err
		}
		// The kernel makes a device that cannot tell several addresses apart
		// promiscuous when it has them.
		implied := uint32(min(len(lists.unicast), 1))
		groups, stacked := parseMulticast(lists.multicast, l.index)
		*s = State{
			Up: l.flags&unix.IFF_UP != 0, MAC: l.mac, MTU: int(l.mtu),
			Promisc: l.promisc > implied, AllMulti: l.allmulti > 0,
			PromiscSet: l.flags&unix.IFF_PROMISC != 0, AllMultiSet: l.flags&unix.IFF_ALLMULTI != 0,
			Unicast: ordered(lists.unicast), Multicast: ordered(groups),
			Trunk: l.master != 0,
		}
		err = d.location.stacked(l.index, stacked, s)
		return digest{d.location.id, l.index, l.promisc, l.allmulti, lists}, err
	}
}

// locate makes d.location the device's namespace and returns its name there.
func (d *Device) locate() (string, error) {
	req := ifreq{}
	err := req.get(d.queues[0].FD())
	if err == nil {
		err = d.follow()
	}
	if errors.Is(err, unix.EBADFD) {
		err = fmt.Errorf("%w: %w", ErrGone, err)
	}
	return unix.ByteSliceToString(req.name[:]), err
}

// digest is what can change without the kernel telling anybody.
type digest struct {
	namespace         namespace
	index             int
	promisc, allmulti uint32 // how many want it
	lists             lists
}

// lists are a device's address lists.
type lists struct {
	unicast   []net.HardwareAddr
	multicast []byte // all of /proc/net/dev_mcast
}

func (l lists) equal(o lists) bool {
	return bytes.Equal(l.multicast, o.multicast) &&
		slices.EqualFunc(l.unicast, o.unicast, func(a, b net.HardwareAddr) bool { return bytes.Equal(a, b) })
}

// silent reports whether anything that the kernel does not announce is
// different from old, or State has returned something else than Watch has told.
func (d *Device) silent(old digest) (changed bool, err error) {
	err = d.do("looking for changes", func() error {
		name, err := d.locate()
		if err != nil {
			return err
		}
		l, err := d.location.link(name)
		if d.location.id != old.namespace || errors.Is(err, unix.ENODEV) {
			changed = true
			return nil
		}
		if err != nil {
			return err
		}
		lists, err := d.location.lists(&l, false)
		if l.master != 0 {
			lists.unicast = old.lists.unicast
		}
		changed = d.strayed || l.promisc != old.promisc || l.allmulti != old.allmulti || !lists.equal(old.lists)
		return err
	})
	return changed, err
}

// ordered sorts addresses.
func ordered(addrs []net.HardwareAddr) []net.HardwareAddr {
	slices.SortFunc(addrs, func(a, b net.HardwareAddr) int { return bytes.Compare(a, b) })
	return addrs
}

// parseMulticast finds the groups of the device with that index in
// /proc/net/dev_mcast, whose lines are: index, name, users, global users,
// address. It also returns how many devices that are up seem to be stacked on
// the device: each joins the group of all hosts, and the device with it.
func parseMulticast(file []byte, index int) (groups []net.HardwareAddr, stacked int) {
	want := fmt.Append(nil, index)
	for line := range bytes.Lines(file) {
		f := bytes.Fields(line)
		if len(f) != 5 || !bytes.Equal(f[0], want) {
			continue
		}
		mac, err := hex.DecodeString(string(f[4]))
		if err != nil || len(mac) != 6 {
			continue
		}
		groups = append(groups, mac)
		if bytes.Equal(mac, allHosts) {
			users, err := strconv.Atoi(string(f[2]))
			if err == nil {
				stacked = users - 1 // itself
			}
		}
	}
	return groups, stacked
}

// allHosts is the address of 224.0.0.1 on Ethernet.
var allHosts = []byte{0x01, 0x00, 0x5e, 0, 0, 1}

// link is what the kernel says of one netdevice.
type link struct {
	index             int
	flags             uint32
	mac               net.HardwareAddr
	mtu               uint32
	promisc, allmulti uint32 // how many want it
	master            uint32
	lower             uint32 // the device that it is stacked on; 0 for none
	lowerElsewhere    bool   // that is in another namespace, namely in
	lowerNS           int32  // the one with this identifier
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
	if l.flags&unix.IFF_ALLMULTI != 0 {
		l.allmulti = max(l.allmulti, 1) // kernels before 6.0 do not count
	}
	return l, nil
}

// attributes parses a list of attributes. The parser reads the padding behind
// the last one without asking whether there is any.
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
