// Package policy says what each host of an I/O unit may do: which addresses and
// VLANs it may use, whether it may listen to everything, how much it may send
// and receive, and how much of the unit's resources it gets. It is read from a
// YAML file:
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
	"slices"
	"strconv"
	"strings"

	"github.com/splitnic/splitnic/protocol"
)

// Host is what one host may do. It is never changed once it is in use.
type Host struct {
	MACs        []Pattern        // that it may have and send from; nil: any
	VLANs       protocol.VLANSet // that it may use
	Promiscuous bool             // it may ask for frames that are not for it
	MaxQueues   int              // data channels; 0: as many as the I/O unit has
	MaxMemory   int64            // bytes registered for a session; 0: no bound of its own
	Modes       []protocol.Mode  // transfer modes
	MaxSessions int              // of one key at a time
	MaxTxRate   int64            // bits per second to the LAN; 0: no bound
	MaxRxRate   int64            // bits per second from the LAN; 0: no bound
}

// DefaultSessions is how many sessions one key has at a time unless a policy
// says otherwise.
const DefaultSessions = 4

// unrestricted is what a host may do without a policy.
func unrestricted() Host {
	return Host{VLANs: protocol.AllVLANs(), Modes: protocol.Modes(), MaxSessions: DefaultSessions}
}

// Policy is the policy of an I/O unit. It may be used by several goroutines.
type Policy struct {
	def   Host
	hosts map[string]*Host // by name or fingerprint
}

// Default is the policy of an I/O unit without a policy file: any address that
// nobody else has, all VLANs, all modes, not promiscuous.
func Default() *Policy { return &Policy{def: unrestricted()} }

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

// MayUse reports whether the host may have address m, or send from it.
func (h *Host) MayUse(m protocol.MAC) bool {
	return h.MACs == nil || slices.ContainsFunc(h.MACs, func(p Pattern) bool { return p.Matches(m) })
}

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
