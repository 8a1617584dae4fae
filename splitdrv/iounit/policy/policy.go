// Package policy says what each host of an I/O unit may do: which addresses and
// VLANs it may use, whether it may listen to everything, how much it may send
// and receive, and how much of the unit's resources it gets. An address that the
// entry of a host names is kept for that host. A policy is read from a YAML file:
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
// A host gets the entry of its key, or of the name that it is trusted by, or
// else the default. What an entry does not say is as in the default, and what
// that does not say is as without a policy.
package policy

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/splitnic/splitnic/protocol"
)

// Host is what one host may do. It is never changed once it is in use. It has a field for
// each key of the file.
type Host struct {
	OwnMAC        bool             // it may have the address that is derived from its key
	AnyMAC        bool             // it may have, and send from, any address that nobody else has
	MACs          []Pattern        // that it may have and send from besides
	Share         string           // hosts with the same word may have the same address at a time; "": none does
	IPs           []netip.Prefix   // that it may send from; nil: any
	VLANs         protocol.VLANSet // that it may use
	TaggedOnly    bool             // no frames pass without the tag of a VLAN
	SingleTag     bool             // its frames have one VLAN tag at most
	LinkControl   bool             // it may send frames that are for the next switch
	Promiscuous   bool             // it may ask for frames that are not for it
	RequireBind   bool             // it has to prove that its queue pairs are its own
	MaxQueues     int              // data channels; 0: as many as the I/O unit has
	MaxMemory     int64            // bytes registered for a session; 0: no bound of its own
	NoDirect      bool             // it has no direct connections to other hosts
	DirectWith    []string         // to whom it may have them, by name or fingerprint; nil: to all
	Modes         []protocol.Mode  // transfer modes
	MaxSessions   int              // of one key at a time
	MaxTxRate     int64            // bits per second to the LAN; 0: no bound
	MaxRxRate     int64            // bits per second from the LAN; 0: no bound
	MaxTxPPS      int64            // packets per second to the LAN; 0: no bound
	MaxRxPPS      int64            // packets per second from the LAN; 0: no bound
	MaxTxGroupPPS int64            // packets per second to groups of the LAN, all of them together; 0: no bound

	entry    string    // key of the host's entry; "": it has none
	reserved *reserved // addresses that entries name; nil: none does
}

// DefaultSessions is how many sessions one key has at a time unless a policy
// says otherwise.
const DefaultSessions = 4

// unsaid is what a host may do where a policy does not say anything.
func unsaid() Host {
	return Host{OwnMAC: true, VLANs: protocol.AllVLANs(), Modes: protocol.Modes(), MaxSessions: DefaultSessions}
}

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
	// Keeps is whether it does no more than keep addresses from other hosts: nobody needs to
	// have the name.
	Keeps bool
}

// Entries are those of single hosts, as they are in the file. They are not to be changed.
func (p *Policy) Entries() []Entry { return p.entries }

// Default is the policy of an I/O unit without a policy file: each host has its
// own address only, all VLANs and all modes, and is not promiscuous.
func Default() *Policy { return &Policy{def: unsaid()} }

// For is what the host with that key may do, which is trusted by that name, ""
// if it is trusted without.
func (p *Policy) For(fingerprint, name string) *Host {
	if h := p.hosts[fingerprint]; h != nil {
		return h
	}
	if h := p.hosts[name]; h != nil && name != "" {
		return h
	}
	return &p.def
}

// MayUse reports whether the host may have address m, or send from it; own is
// the one that was made for it. It is meant for every frame.
func (h *Host) MayUse(m, own protocol.MAC) bool {
	may := h.AnyMAC || h.OwnMAC && m == own
	for i := range h.MACs {
		may = may || h.MACs[i].Matches(m)
	}
	return may && !h.Reserved(m)
}

// Reserved reports whether the policy keeps address m for other hosts: their
// entries name it, by a longer pattern than this host's own.
func (h *Host) Reserved(m protocol.MAC) bool { return h.reserved.against(m, h.entry) }

// Pattern is an address, or the first bytes of one.
type Pattern struct {
	addr [6]byte
	n    int // bytes that count
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

// Matches reports whether m has the pattern's bytes. It is meant for every
// frame.
func (p Pattern) Matches(m protocol.MAC) bool {
	for i := range p.n {
		if m[i] != p.addr[i] {
			return false
		}
	}
	return true
}

// Fit returns m with the pattern's bytes in place of its own.
func (p Pattern) Fit(m protocol.MAC) protocol.MAC {
	copy(m[:p.n], p.addr[:])
	return m
}

// String is what ParsePattern parses.
func (p Pattern) String() string {
	s := net.HardwareAddr(p.addr[:p.n]).String()
	if p.n < len(p.addr) {
		s += ":*"
	}
	return s
}

// reserved are the addresses that entries of single hosts name, and whose they
// are. The longest pattern that an address has decides: of 02:aa:* and
// 02:aa:00:00:00:01 the latter keeps that address from those who have only the
// former. It is never changed.
type reserved struct {
	bySize [6][]claim // by the number of bytes that count, less one; in ascending order
}

// claim is a pattern, and the keys of the entries that name it.
type claim struct {
	prefix  uint64
	entries []string
}

// against reports whether address m is kept from the host with that entry.
func (r *reserved) against(m protocol.MAC, entry string) bool {
	if r == nil {
		return false
	}
	for n := len(m); n > 0; n-- {
		claims, prefix := r.bySize[n-1], prefixOf(m, n)
		low, high := 0, len(claims)
		for low < high {
			mid := int(uint(low+high) / 2)
			if claims[mid].prefix < prefix {
				low = mid + 1
			} else {
				high = mid
			}
		}
		if low < len(claims) && claims[low].prefix == prefix {
			return !slices.Contains(claims[low].entries, entry)
		}
	}
	return false
}

// prefixOf is the first n bytes of an address, as a number.
func prefixOf(m [6]byte, n int) (v uint64) {
	for _, b := range m[:n] {
		v = v<<8 | uint64(b)
	}
	return v
}
