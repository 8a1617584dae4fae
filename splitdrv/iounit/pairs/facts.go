package pairs

import (
	"slices"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/vnet"
)

// Cause is why there is no direct connection, or why one has ended.
type Cause string

// Causes why a host has none: they may pass, but for the first ones.
const (
	Unwilling   Cause = "unwilling"   // the host, or the I/O unit, is without direct connections
	Unbound     Cause = "unbound"     // its queue pairs are not proved to be its own
	Policy      Cause = "policy"      // `direct`
	Rate        Cause = "rate"        // what bounds it is at the I/O unit
	IPs         Cause = "ips"         // which only the I/O unit checks
	Untagged    Cause = "untagged"    // the same
	NestedTags  Cause = "nested-tags" // the same
	Shared      Cause = "share"       // an address of its leads to more hosts than one
	Promiscuous Cause = "promiscuous" // a host would not get its copies
	MTU         Cause = "mtu"         // of both netdevices
	Offloads    Cause = "offloads"    // the same
	Mode        Cause = "mode"        // they have none in common
	Platform    Cause = "platform"    // they are one process
	Opening     Cause = "opening"     // the session is not established yet
	Down        Cause = "down"        // the port, or the session is on standby
	LinkDown    Cause = "link-down"   // of the LAN
	Resting     Cause = "resting"     // after a failure
	Full        Cause = "full"        // one has as many as it may have, or had; another one took its place
	Address     Cause = "address"     // has changed
	VLANs       Cause = "vlans"       // have changed
	Name        Cause = "name"        // has changed
	Gone        Cause = "gone"        // the session of one of them has ended
	Refused     Cause = "refused"     // a host ended it before it had started
	ByHost      Cause = "host"        // a host ended it
	Timeout     Cause = "timeout"     // a host did not answer
	Unconfirmed Cause = "unconfirmed" // the other host of a held connection did not come
)

// Ends are the causes by which the ends of connections are counted.
func Ends() []Cause {
	return []Cause{Unwilling, Policy, Rate, IPs, Untagged, NestedTags, Shared, Promiscuous, MTU, Offloads, Mode, Platform,
		Opening, Down, LinkDown, Full, Address, VLANs, Name, Gone, Refused, ByHost, Timeout, Unconfirmed}
}

// passes reports whether a held connection may wait for the cause to pass.
func (c Cause) passes() bool { return c == Opening || c == Down || c == LinkDown }

// lasting is the cause if it does not pass, and otherwise "".
func (c Cause) lasting() Cause {
	if c.passes() {
		return ""
	}
	return c
}

// Facts are what is true of a host.
type Facts struct {
	Name     string // for people
	Platform protocol.Platform
	MACs     []protocol.MAC
	VLANs    protocol.VLANSet // that it may use and wants
	MTU      int
	Mode     protocol.Mode   // of its session
	Modes    []protocol.Mode // that it can and may use, the preferred one first
	Offloads vnet.Offloads
	Pools    int      // that it lends at most
	Features []string // that it has, of those about channels

	No      Cause    // why it has no direct connections; "": it may
	Promisc bool     // it gets copies of others' frames; also of a host that has none
	Known   []string // by which a policy knows it: name and key
	Only    []string // whom the policy lets it have, as Known has it; nil: anybody
}

func (f *Facts) equal(o *Facts) bool {
	return f.Name == o.Name && f.Platform == o.Platform && slices.Equal(f.MACs, o.MACs) && f.VLANs == o.VLANs &&
		f.MTU == o.MTU && f.Mode == o.Mode && slices.Equal(f.Modes, o.Modes) && f.Offloads == o.Offloads &&
		f.Pools == o.Pools && slices.Equal(f.Features, o.Features) && f.No == o.No && f.Promisc == o.Promisc &&
		slices.Equal(f.Known, o.Known) && slices.Equal(f.Only, o.Only) && (f.Only == nil) == (o.Only == nil)
}

// permits reports whether the host's policy lets it have that one.
func (f *Facts) permits(o *Facts) bool {
	return f.Only == nil || slices.ContainsFunc(o.Known, func(s string) bool { return slices.Contains(f.Only, s) })
}

// terms are what two hosts agree on, as the I/O unit has it.
type terms struct {
	mode     protocol.Mode
	mtu      int
	pools    int
	features []string
	peers    [2]session.DirectPeer // what each is told of the other
}

// commonMode is that of both sessions, or else imm, or else the first that both have.
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

// differ is what a connection has that would be made otherwise now; "" if nothing.
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
