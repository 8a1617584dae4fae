package tap

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
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

// digest is what can change without the kernel telling anybody, and where that was.
type digest struct {
	namespace         namespace
	index             int
	promisc, allmulti uint32 // how many want it
	master            uint32
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
