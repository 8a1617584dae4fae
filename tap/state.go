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

// ErrGone is wrapped by errors about a device that has been deleted.
var ErrGone = errors.New("the TAP device was deleted")

// State is what the operating system requires of a device, as it would of a network card:
// the settings of an administrator, and the needs of programs, addresses and devices stacked
// on it.
type State struct {
	Up  bool // administratively
	MAC net.HardwareAddr
	MTU int // bytes

	// Promisc and AllMulti report whether all frames, or all multicast frames, are wanted: by
	// an administrator, a packet socket such as that of tcpdump, or a bridge.
	Promisc, AllMulti bool
	// PromiscSet and AllMultiSet are the device's own settings, which SetPromisc and
	// SetAllMulti change.
	PromiscSet, AllMultiSet bool

	Unicast   []net.HardwareAddr // addresses wanted besides MAC; sorted
	Multicast []net.HardwareAddr // groups joined; sorted

	// VLANs are the identifiers, sorted, of the VLAN devices stacked on the device: those in
	// its network namespace, and those in other namespaces for which that has an identifier.
	// It has one when a VLAN device is moved from it to a container.
	VLANs []int
	// Trunk reports whether a device that may use any VLAN is stacked on this one: a bridge or
	// another master, a macvlan, or a device that cannot be seen from the network namespace of
	// this one.
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

// digest has the attributes of a device whose changes the kernel does not announce, and
// identifies the device that they were read from.
type digest struct {
	namespace         namespace
	index             int
	promisc, allmulti uint32 // number of users
	master            uint32
	unicast           []net.HardwareAddr
	multicast         []byte // all of /proc/net/dev_mcast
}

// ordered sorts addresses.
func ordered(addrs []net.HardwareAddr) []net.HardwareAddr {
	slices.SortFunc(addrs, func(a, b net.HardwareAddr) int { return bytes.Compare(a, b) })
	return addrs
}

// parseMulticast returns the groups of the device with this index from the content of
// /proc/net/dev_mcast, whose lines are: index, name, users, global users, address. It also
// returns how many devices that are up seem to be stacked on the device: each of them joins
// the group of all hosts, and makes the device join it too.
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
				stacked = users - 1 // one is the device itself
			}
		}
	}
	return groups, stacked
}

// allHosts is the address of 224.0.0.1 on Ethernet.
var allHosts = []byte{0x01, 0x00, 0x5e, 0, 0, 1}
