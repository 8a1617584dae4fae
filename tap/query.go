package tap

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// ask sends a request and returns the answers of type answer. It repeats a request whose dump
// was interrupted.
func (p *location) ask(req *nl.NetlinkRequest, answer uint16) ([][]byte, error) {
	req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: p.query}
	for {
		msgs, err := req.Execute(unix.NETLINK_ROUTE, answer)
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			return msgs, err
		}
	}
}

// link requests the device with this name.
func (p *location) link(name string) (link, error) {
	req := nl.NewNetlinkRequest(unix.RTM_GETLINK, 0)
	req.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	req.AddData(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(name)))
	msgs, err := p.ask(req, unix.RTM_NEWLINK)
	if err != nil {
		return link{}, err
	}
	if len(msgs) != 1 {
		return link{}, unix.ENODEV
	}
	return parseLink(msgs[0])
}

// readMulticast reads multicastFile from its beginning.
func (p *location) readMulticast() ([]byte, error) {
	b := make([]byte, 0, 4096)
	for {
		n, err := unix.Pread(int(p.multicast.Fd()), b[len(b):cap(b)], int64(len(b)))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", multicastFile, err)
		}
		if n == 0 {
			return b, nil
		}
		b = slices.Grow(b[:len(b)+n], 4096)
	}
}

// unicast requests the unicast addresses that the device with this index is to receive
// besides its own. They are in the forwarding table that the kernel shows for every Ethernet
// device.
func (p *location) unicast(index int) ([]net.HardwareAddr, error) {
	req := nl.NewNetlinkRequest(unix.RTM_GETNEIGH, unix.NLM_F_DUMP)
	ask := nl.NewIfInfomsg(unix.AF_BRIDGE)
	ask.Index = int32(index)
	req.AddData(ask)
	msgs, err := p.ask(req, unix.RTM_NEWNEIGH)
	if err != nil {
		return nil, fmt.Errorf("asking for the addresses: %w", err)
	}
	var addrs []net.HardwareAddr
	for _, m := range msgs {
		if len(m) < ndmsgSize {
			return nil, errShort
		}
		if !ownAddress(m, index) {
			continue
		}
		ok := eachAttribute(m[ndmsgSize:], func(kind uint16, value []byte) {
			if kind == attrLLAddr && unicast(value) {
				addrs = append(addrs, slices.Clone(value))
			}
		})
		if !ok {
			return nil, errShort
		}
	}
	return addrs, nil
}

const (
	ndmsgSize  = 12
	attrLLAddr = 2 // NDA_LLADDR
)

// ownAddress reports whether a struct ndmsg is about an address that the device with this
// index is to receive.
func ownAddress(ndmsg []byte, index int) bool {
	return int(binary.NativeEndian.Uint32(ndmsg[4:])) == index && ndmsg[10]&unix.NTF_SELF != 0
}

func unicast(addr []byte) bool { return len(addr) == 6 && addr[0]&1 == 0 }

// stacked adds to s the devices stacked on the device with this index, in its network
// namespace and in the namespaces for which that has an identifier. up is the number of
// stacked devices that are up. If fewer are found the others are in namespaces that cannot be
// seen, and s.Trunk is set.
func (p *location) stacked(index, up int, s *State) error {
	add := func(l link) {
		s.stack(l)
		if l.flags&unix.IFF_UP != 0 {
			up--
		}
	}
	links, err := p.dump()
	if err != nil {
		return fmt.Errorf("listing devices: %w", err)
	}
	for _, l := range links {
		if int(l.lower) == index && !l.lowerElsewhere {
			add(l)
		}
	}
	ids, err := p.neighbours()
	if err != nil {
		return fmt.Errorf("listing network namespaces: %w", err)
	}
	for _, id := range ids {
		links, err := p.dump(nl.NewRtAttr(unix.IFLA_TARGET_NETNSID, nl.Uint32Attr(uint32(id))))
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
			s.Trunk = true // the devices there are unknown
			continue
		}
		if err != nil {
			continue // the namespace is gone
		}
		for _, l := range links {
			if int(l.lower) != index || !l.lowerElsewhere {
				continue
			}
			if own, err := p.handle.GetNetNsIdByFd(int(p.file.Fd())); err == nil && own == int(l.lowerNS) {
				add(l)
			}
		}
	}
	s.Trunk = s.Trunk || up > 0
	slices.Sort(s.VLANs)
	s.VLANs = slices.Compact(s.VLANs)
	return nil
}

// stack adds the stacked device l to s.
func (s *State) stack(l link) {
	switch l.kind {
	case "vlan":
		s.VLANs = append(s.VLANs, l.vlan)
	case "macvlan", "macvtap":
		s.Trunk = true
	}
}

// extSkipStats is RTEXT_FILTER_SKIP_STATS.
const extSkipStats = 1 << 3

// dump lists all devices.
func (p *location) dump(attrs ...*nl.RtAttr) ([]link, error) {
	req := nl.NewNetlinkRequest(unix.RTM_GETLINK, unix.NLM_F_DUMP)
	req.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	req.AddData(nl.NewRtAttr(unix.IFLA_EXT_MASK, nl.Uint32Attr(extSkipStats)))
	for _, a := range attrs {
		req.AddData(a)
	}
	msgs, err := p.ask(req, unix.RTM_NEWLINK)
	if err != nil {
		return nil, err
	}
	links := make([]link, 0, len(msgs))
	for _, m := range msgs {
		l, err := parseLink(m)
		if err != nil {
			return nil, err
		}
		links = append(links, l)
	}
	return links, nil
}

// rtGenSize is the size of struct rtgenmsg with its padding.
const rtGenSize = 4

// neighbours returns the identifiers that this network namespace has for others.
func (p *location) neighbours() ([]int32, error) {
	req := nl.NewNetlinkRequest(unix.RTM_GETNSID, unix.NLM_F_DUMP)
	req.AddData(nl.NewRtGenMsg())
	msgs, err := p.ask(req, unix.RTM_NEWNSID)
	if err != nil {
		return nil, err
	}
	own, err := p.handle.GetNetNsIdByFd(int(p.file.Fd()))
	if err != nil {
		return nil, err
	}
	var ids []int32
	for _, m := range msgs {
		if id, ok := nsID(m); ok && id != int32(own) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// nsID returns the identifier in an RTM_NEWNSID.
func nsID(m []byte) (id int32, ok bool) {
	if len(m) < rtGenSize {
		return 0, false
	}
	eachAttribute(m[rtGenSize:], func(kind uint16, value []byte) {
		if kind == unix.NETNSA_NSID && len(value) >= 4 {
			id, ok = int32(binary.NativeEndian.Uint32(value)), true
		}
	})
	return id, ok
}
