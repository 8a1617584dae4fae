package pairs

import (
	"slices"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/seal"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/vnet"
)

// Cause is the reason why there is no direct connection, or why one has ended.
type Cause string

// The causes. Except for the first ones, the reason for a cause may pass.
const (
	Unwilling   Cause = "unwilling"   // the host, or the I/O unit, has no direct connections
	Unbound     Cause = "unbound"     // the host has not proved that its queue pairs are its own
	Policy      Cause = "policy"      // the key `direct` of the policy does not permit it
	Rate        Cause = "rate"        // the host has a rate limit, which is applied by the I/O unit
	IPs         Cause = "ips"         // only the I/O unit can check the host's IP addresses
	Untagged    Cause = "untagged"    // the same for untagged frames
	NestedTags  Cause = "nested-tags" // the same for nested tags
	Shared      Cause = "share"       // several hosts have, or may have, the same address
	Promiscuous Cause = "promiscuous" // a promiscuous host would not get copies of the frames
	MTU         Cause = "mtu"         // the MTUs of the two netdevices differ, or have changed
	Offloads    Cause = "offloads"    // the offloads of the two netdevices differ
	Mode        Cause = "mode"        // there is no common transfer mode, or the mode has changed
	Encryption  Cause = "encryption"  // one of the sessions is encrypted, and the hosts have no common cipher
	Platform    Cause = "platform"    // both hosts are one process
	Opening     Cause = "opening"     // the session is not established yet
	Down        Cause = "down"        // the port is down, or the session is on standby
	LinkDown    Cause = "link-down"   // the link of the LAN is down
	Resting     Cause = "resting"     // the two hosts get no offer for a while after an end that a host has caused
	Full        Cause = "full"        // a host has, or had, its largest number of connections
	Addresses   Cause = "addresses"   // the host has more addresses than a connection can have
	Address     Cause = "address"     // an address has changed
	VLANs       Cause = "vlans"       // the VLANs have changed
	Name        Cause = "name"        // a name has changed
	Gone        Cause = "gone"        // the session of one of the hosts has ended
	Refused     Cause = "refused"     // a host has ended the connection before its start
	ByHost      Cause = "host"        // a host has ended the connection
	Timeout     Cause = "timeout"     // a host has not answered in time
	Unconfirmed Cause = "unconfirmed" // the other host of a held connection has not reported it
)

// Ends returns the causes by which the ends of connections are counted.
func Ends() []Cause {
	return []Cause{Unwilling, Policy, Rate, IPs, Untagged, NestedTags, Shared, Promiscuous, MTU, Offloads, Mode,
		Encryption, Platform,
		Opening, Down, LinkDown, Full, Addresses, Address, VLANs, Name, Gone, Refused, ByHost, Timeout, Unconfirmed}
}

// passes reports whether a held connection may wait for the cause to pass.
func (c Cause) passes() bool { return c == Opening || c == Down || c == LinkDown }

// lasting returns the cause unless it passes; then it returns "".
func (c Cause) lasting() Cause {
	if c.passes() {
		return ""
	}
	return c
}

// Facts has the facts about a host on which its direct connections depend.
type Facts struct {
	Name      string // that the host has chosen
	Shown     string // name for hosts with other keys, which the host has not chosen
	Key       string // fingerprint of the host's key; "" if it has none
	Platform  protocol.Platform
	MACs      []protocol.MAC
	VLANs     protocol.VLANSet // that the host may use and wants
	MTU       int
	Mode      protocol.Mode   // of the host's session
	Modes     []protocol.Mode // that the host can and may use, the preferred one first
	Offloads  vnet.Offloads
	Pools     int           // largest number of pools that the host lends
	Features  []string      // the host's features about channels
	Ciphers   []seal.Cipher // that the host has, in order of preference
	Encrypted bool          // the host's session is encrypted

	No      Cause    // why the host has no direct connections; "": it may have some
	Promisc bool     // the host gets copies of other hosts' frames; set whatever No is
	Known   []string // names of the host in a policy: its name and its key
	Only    []string // hosts to which the policy permits connections, as in Known; nil: all hosts
}

func (f *Facts) equal(o *Facts) bool {
	return f.Name == o.Name && f.Shown == o.Shown && f.Key == o.Key && f.Platform == o.Platform &&
		slices.Equal(f.MACs, o.MACs) && f.VLANs == o.VLANs && f.MTU == o.MTU && f.Mode == o.Mode &&
		slices.Equal(f.Modes, o.Modes) && f.Offloads == o.Offloads && f.Pools == o.Pools &&
		slices.Equal(f.Features, o.Features) && slices.Equal(f.Ciphers, o.Ciphers) && f.Encrypted == o.Encrypted &&
		f.No == o.No && f.Promisc == o.Promisc &&
		slices.Equal(f.Known, o.Known) && slices.Equal(f.Only, o.Only) && (f.Only == nil) == (o.Only == nil)
}

// nameFor returns the name of the host for another one. Hosts that share a key are one to the I/O unit:
// only the names that they have chosen tell them apart.
func (f *Facts) nameFor(o *Facts) string {
	if f.Key == o.Key {
		return f.Name
	}
	return f.Shown
}

// permits reports whether the host's policy permits connections to the host with facts o.
func (f *Facts) permits(o *Facts) bool {
	return f.Only == nil || slices.ContainsFunc(o.Known, func(s string) bool { return slices.Contains(f.Only, s) })
}

// terms has the parameters of a connection between two hosts. The I/O unit determines them.
type terms struct {
	mode     protocol.Mode
	mtu      int
	pools    int
	features []string
	cipher   seal.Cipher           // "": it is not encrypted
	peers    [2]session.DirectPeer // what each host is told about the other one
}

// commonMode returns the mode of both sessions if they have the same, else imm if both hosts
// have that, or else the first mode that both have. It returns "" if there is none.
func commonMode(x, y *Facts) protocol.Mode {
	if x.Mode == y.Mode {
		return x.Mode
	}
	for _, m := range append([]protocol.Mode{protocol.ModeImm}, x.Modes...) {
		if slices.Contains(x.Modes, m) && slices.Contains(y.Modes, m) {
			return m
		}
	}
	return ""
}

// differ returns the first difference between the terms of a connection and those that it
// would get now, or "" if there is none.
func (t *terms) differ(now *terms) Cause {
	for i := range t.peers {
		was, is := &t.peers[i], &now.peers[i]
		switch {
		case !slices.Equal(was.MACs, is.MACs):
			return Address
		case was.VLANs != is.VLANs:
			return VLANs
		case was.Name != is.Name:
			return Name
		}
	}
	switch {
	case t.mtu != now.mtu:
		return MTU
	case t.mode != now.mode:
		return Mode
	default:
		return ""
	}
}
