// Package policy has the policy of an I/O unit. For each host, the policy determines which
// addresses and VLANs the host may use, whether the host may be promiscuous, how much it may
// send and receive, and how much of the unit's resources it may use. An address in the entry
// of a host is reserved for that host. A policy is read from a YAML file:
//
//	default:
//	  vlans: none
//	hosts:
//	  alpha:                # the name of a trust entry
//	    macs: [02:aa:*, 52:54:00:12:34:56]
//	    vlans: [5, 10-19]
//	    promiscuous: yes
//	  sha256:...:           # a key
//	    max-memory: 64M
//
// A host gets the entry of its key, or else that of the name under which it is trusted, or
// else the default. A setting that is missing in an entry is taken from the default. A setting
// that is missing in the default is as without a policy.
package policy

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/splitnic/splitnic/internal/units"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/seal"
)

// Host has the settings of one host, with a field for each key of the file. A Host is not
// changed once it is in use.
type Host struct {
	OwnMAC        bool             // the host may have the address that is derived from its identity
	AnyMAC        bool             // it may have, and send from, any address that no other host has
	MACs          []Pattern        // other addresses that it may have and send from
	Share         string           // hosts with this word may share an address; "": none
	IPs           []netip.Prefix   // IP addresses that it may send from; nil: all
	VLANs         protocol.VLANSet // VLANs that it may use
	TaggedOnly    bool             // frames without a VLAN tag do not pass
	SingleTag     bool             // frames with more than one VLAN tag do not pass
	LinkControl   bool             // it may send link control frames, which are for the next switch
	Promiscuous   bool             // it may receive frames for other stations
	Encrypt       seal.Wish        // whether its sessions are encrypted; "": as the I/O unit has it
	RequireBind   bool             // it has to prove that its queue pairs are its own
	MaxMACs       int              // addresses besides that of its netdevice; 0: DefaultMACs
	MaxQueues     int              // data channels; 0: as many as the I/O unit has
	MaxMemory     int64            // bytes registered for a session; 0: no limit for this host
	NoDirect      bool             // it may have no direct connections to other hosts
	DirectWith    []string         // hosts to which it may have some: names, fingerprints; nil: all
	Modes         []protocol.Mode  // allowed transfer modes
	MaxSessions   int              // sessions of one key at a time
	MaxTxRate     int64            // bits per second to the LAN; 0: no limit
	MaxRxRate     int64            // bits per second from the LAN; 0: no limit
	MaxTxPPS      int64            // packets per second to the LAN; 0: no limit
	MaxRxPPS      int64            // packets per second from the LAN; 0: no limit
	MaxTxGroupPPS int64            // packets per second to all LAN groups together; 0: no limit

	entry    string    // key of the host's entry; "": no entry
	reserved *reserved // addresses that entries name; nil: none
}

// DefaultSessions is the largest number of sessions of one key at a time, unless the policy
// has another one.
const DefaultSessions = 4

// DefaultMACs is the largest number of addresses of a host besides that of its netdevice,
// unless the policy has another one.
const DefaultMACs = 256

// unsaid returns the settings of a host without a policy.
func unsaid() Host {
	return Host{OwnMAC: true, VLANs: protocol.AllVLANs(), Modes: protocol.Modes(), MaxSessions: DefaultSessions}
}

// MostMACs returns how many addresses the host may have besides that of its netdevice.
func (h *Host) MostMACs() int { return cmp.Or(h.MaxMACs, DefaultMACs) }

// Policy is the policy of an I/O unit. It may be used by several goroutines.
type Policy struct {
	def   Host
	hosts map[string]*Host // by name or fingerprint

	entries []Entry
}

// Entry is one host's entry of a policy.
type Entry struct {
	Key  string // name or fingerprint
	Line int    // in the file
	// Keeps says that the entry only reserves addresses, and keeps them from other hosts. Its
	// key need not be that of an existing host.
	Keeps bool
}

// Entries returns the entries of single hosts, in the order of the file. The caller must not
// change them.
func (p *Policy) Entries() []Entry { return p.entries }

// Default returns the policy of an I/O unit without a policy file: each host may use only its
// own address, all VLANs and all modes, and may not be promiscuous.
func Default() *Policy { return &Policy{def: unsaid()} }

// For returns the settings of the host with this key. name is the name under which the key is
// trusted, or "" if there is none.
func (p *Policy) For(fingerprint, name string) *Host {
	if h := p.hosts[fingerprint]; h != nil {
		return h
	}
	if h := p.hosts[name]; h != nil && name != "" {
		return h
	}
	return &p.def
}

// MayUse reports whether the host may have address m, and send from it. own is the address
// that is derived from the host's identity. MayUse is fast enough to be called for every frame.
func (h *Host) MayUse(m, own protocol.MAC) bool {
	may := h.AnyMAC || h.OwnMAC && m == own
	for i := range h.MACs {
		may = may || h.MACs[i].Matches(m)
	}
	return may && !h.Reserved(m)
}

// Reserved reports whether the policy reserves address m for other hosts: their entries name
// it, by a longer pattern than this host's own.
func (h *Host) Reserved(m protocol.MAC) bool { return h.reserved.against(m, h.entry) }

// Pattern is an address, or the first bytes of one.
type Pattern struct {
	addr [6]byte
	n    int // number of bytes in the pattern
}

// ParsePattern parses an address such as 02:aa:00:00:00:01, or a prefix such as
// 02:aa:*.
func ParsePattern(s string) (Pattern, error) {
	prefix, isPrefix := strings.CutSuffix(s, ":*")
	if !isPrefix {
		m, err := protocol.ParseMAC(s)
		return Pattern{m, len(m)}, err
	}
	p := Pattern{}
	for part := range strings.SplitSeq(prefix, ":") {
		b, err := strconv.ParseUint(part, 16, 8)
		if err != nil || len(part) != 2 || p.n == len(p.addr)-1 {
			return Pattern{}, fmt.Errorf("%q is no prefix of a MAC address; use one to five bytes such as 02:aa:*", s)
		}
		p.addr[p.n] = byte(b)
		p.n++
	}
	if p.addr[0]&1 != 0 {
		return Pattern{}, fmt.Errorf("%q is a prefix of groups; the first byte of a host's address is even", s)
	}
	return p, nil
}

// Matches reports whether m begins with the pattern's bytes. It is fast enough to be called
// for every frame.
func (p Pattern) Matches(m protocol.MAC) bool {
	for i := range p.n {
		if m[i] != p.addr[i] {
			return false
		}
	}
	return true
}

// Fit returns m with its first bytes replaced by those of the pattern.
func (p Pattern) Fit(m protocol.MAC) protocol.MAC {
	copy(m[:p.n], p.addr[:])
	return m
}

// String returns the pattern in the form that ParsePattern parses.
func (p Pattern) String() string {
	s := net.HardwareAddr(p.addr[:p.n]).String()
	if p.n < len(p.addr) {
		s += ":*"
	}
	return s
}

// reserved has the addresses that the entries of single hosts name. The longest pattern that
// matches an address decides: the pattern 02:aa:00:00:00:01 keeps this address from hosts that
// have only 02:aa:*. A reserved is not changed once it is in use.
type reserved struct {
	bySize [6][]claim // index: number of bytes in the pattern minus 1; claims in ascending order
}

// claim has a pattern, and the keys of the entries that name the pattern.
type claim struct {
	prefix  uint64
	entries []string
}

// against reports whether address m is reserved, and not for the host with this entry.
func (r *reserved) against(m protocol.MAC, entry string) bool {
	if r == nil {
		return false
	}
	for n := len(m); n > 0; n-- {
		claims := r.bySize[n-1]
		i, found := slices.BinarySearchFunc(claims, prefixOf(m, n), func(c claim, prefix uint64) int {
			return cmp.Compare(c.prefix, prefix)
		})
		if found {
			return !slices.Contains(claims[i].entries, entry)
		}
	}
	return false
}

// prefixOf returns the first n bytes of an address as a number.
func prefixOf(m [6]byte, n int) (v uint64) {
	for _, b := range m[:n] {
		v = v<<8 | uint64(b)
	}
	return v
}

// newReserved returns the addresses that the entries of hosts name, or nil if there are none.
func newReserved(hosts map[string]*Host) *reserved {
	var r *reserved
	for _, key := range slices.Sorted(maps.Keys(hosts)) {
		if hosts[key].entry == "" {
			continue // the host has the addresses of the default, which are for all hosts
		}
		for _, p := range hosts[key].MACs {
			if r == nil {
				r = new(reserved)
			}
			r.add(p, key)
		}
	}
	return r
}

func (r *reserved) add(p Pattern, key string) {
	claims := &r.bySize[p.n-1]
	at, found := slices.BinarySearchFunc(*claims, prefixOf(p.addr, p.n),
		func(c claim, prefix uint64) int { return cmp.Compare(c.prefix, prefix) })
	if !found {
		*claims = slices.Insert(*claims, at, claim{prefix: prefixOf(p.addr, p.n)})
	}
	if c := &(*claims)[at]; !slices.Contains(c.entries, key) {
		c.entries = append(c.entries, key)
	}
}

// MinRate and MaxRate are the limits of a rate in bits per second. At less than MinRate, a
// single frame would take seconds. Besides, a lower number was probably meant to have a suffix
// such as k, M or G.
const (
	MinRate = 100_000
	MaxRate = 1_000_000_000_000
)

// MinPPS and MaxPPS are the limits of a number of packets per second. At less than MinPPS, a
// super-frame would take seconds.
const (
	MinPPS = 100
	MaxPPS = 1_000_000_000
)

// parseRate parses a number of bits per second with an optional suffix k, M, G or T for powers
// of 1000, in either case. As in tc(8), "bit" may follow the suffix. The number may have a
// decimal point. The result is from MinRate to MaxRate.
func parseRate(s string) (int64, error) {
	n, ok := units.Decimal(s, "bit")
	switch {
	case !ok:
		return 0, fmt.Errorf("%q is no rate; use bits per second with k, M or G such as 500M or 2.5G", s)
	case n < MinRate || n > MaxRate:
		return 0, fmt.Errorf("%q is no rate from 100k to 1T bits per second; use k, M or G such as 500M or 2.5G", s)
	}
	return n, nil
}

// parsePPS parses a number of packets per second with an optional suffix k, M or G for powers
// of 1000, in either case. The number may have a decimal point. The result is from MinPPS to
// MaxPPS.
func parsePPS(s string) (int64, error) {
	n, ok := units.Decimal(s, "")
	if !ok || n < MinPPS || n > MaxPPS {
		return 0, fmt.Errorf("%q is no number of packets per second from 100 to 1G; use k or M such as 50k or 1.5M", s)
	}
	return n, nil
}

// ParseIPs parses an IP address such as 192.0.2.10, or a prefix such as
// 2001:db8::/64.
func ParseIPs(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if !strings.Contains(s, "/") {
		var a netip.Addr
		if a, err = netip.ParseAddr(s); err == nil && a.Zone() != "" {
			err = fmt.Errorf("it has a zone")
		}
		p = netip.PrefixFrom(a, a.BitLen())
	}
	switch {
	case err != nil || p.Addr().Is4In6():
		return netip.Prefix{}, fmt.Errorf("%q is no IP address; use any, addresses such as 192.0.2.10, or prefixes such as 2001:db8::/64", s)
	case p.Masked() != p:
		return netip.Prefix{}, fmt.Errorf("%q has bits behind its prefix; use %v or %v", s, p.Masked(), p.Addr())
	case p.Addr().IsMulticast():
		return netip.Prefix{}, fmt.Errorf("%q is a group; use addresses that a host sends from", s)
	}
	return p, nil
}
