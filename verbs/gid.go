package verbs

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// GIDHint narrows the choice of a GID. The zero value is no hint.
type GIDHint struct {
	Netdev string     // only entries of this netdevice
	Peer   netip.Addr // prefer this address's subnet, or else its address family
}

// maxGIDIndex is the largest index that ibv_global_route.sgid_index can hold.
const maxGIDIndex = 255

// ErrNoGID is wrapped by the error of ChooseGID if no entry is usable.
var ErrNoGID = errors.New("no usable GID")

// chooseGID returns the entry of a port's GID table that a connection should use, and the
// reason for the choice. The index matters only if all else is equal, because it differs
// between devices and between boots. The rules, in order:
//
//  1. Not a candidate is an entry of another port, with the all-zero GID, or with an index
//     that exceeds the 8 bits of ibv_global_route.sgid_index. With hint.Netdev, an entry of
//     another netdevice is not a candidate either.
//  2. RoCE v2 rather than v1: v1 cannot be routed, and not every device has it.
//  3. With hint.Peer: an address in the peer's subnet, then one of the peer's
//     address family.
//  4. IPv4 rather than global IPv6, and both rather than link-local: a link-local address
//     does not imply reachability, and needs a scope.
//  5. The lowest index.
//
// On an InfiniBand port the first GID is chosen, because packets are addressed by LID.
func chooseGID(port PortAttr, table []GIDEntry, hint GIDHint) (GIDEntry, string, error) {
	var best GIDEntry
	var bestRank gidRank
	var others []string
	found := false
	for _, e := range table {
		if (e.Port != 0 && e.Port != port.Port) || e.GID.IsZero() || e.Index > maxGIDIndex {
			continue
		}
		if hint.Netdev != "" && port.LinkLayer != LinkInfiniBand && e.Netdev != hint.Netdev {
			continue
		}
		r := rankGID(e, hint)
		if port.LinkLayer == LinkInfiniBand {
			r = gidRank{}
		}
		if !found || r.better(bestRank) || (r == bestRank && e.Index < best.Index) {
			if found {
				others = append(others, best.String())
			}
			best, bestRank, found = e, r, true
			continue
		}
		others = append(others, e.String())
	}
	if !found {
		return GIDEntry{}, "", fmt.Errorf("port %d: %w: %s", port.Port, ErrNoGID, gidFix(table, hint))
	}
	if port.LinkLayer == LinkInfiniBand {
		return best, fmt.Sprintf("%s, InfiniBand: packets are addressed by LID %#x", best, port.LID), nil
	}
	why := best.String() + ", " + strings.Join(bestRank.reasons(hint), ", ")
	if len(others) > 0 {
		why += "; passed over " + strings.Join(others, ", ")
	}
	return best, why, nil
}

// gidRank orders GIDs. The fields are compared in order; larger is better.
type gidRank struct {
	roceV2, subnet, family bool
	scope                  uint8 // 2 IPv4, 1 global IPv6, 0 link-local
}

func rankGID(e GIDEntry, hint GIDHint) gidRank {
	a := e.GID.Addr()
	r := gidRank{roceV2: e.Type == GIDTypeRoCEv2}
	if p := hint.Peer.Unmap(); p.IsValid() {
		r.subnet = e.NetdevPrefix.IsValid() && e.NetdevPrefix.Contains(p.WithZone(""))
		r.family = a.Is4() == p.Is4() && a.IsLinkLocalUnicast() == p.IsLinkLocalUnicast()
	}
	switch {
	case a.Is4():
		r.scope = 2
	case !a.IsLinkLocalUnicast():
		r.scope = 1
	}
	return r
}

func (r gidRank) better(o gidRank) bool {
	switch {
	case r.roceV2 != o.roceV2:
		return r.roceV2
	case r.subnet != o.subnet:
		return r.subnet
	case r.family != o.family:
		return r.family
	}
	return r.scope > o.scope
}

func (r gidRank) reasons(hint GIDHint) []string {
	var s []string
	if r.roceV2 {
		s = append(s, "RoCE v2 can be routed")
	} else {
		s = append(s, "RoCE v1 is all there is")
	}
	switch {
	case r.subnet:
		s = append(s, "same subnet as "+hint.Peer.String())
	case r.family:
		s = append(s, "same address family as "+hint.Peer.String())
	case hint.Peer.IsValid():
		s = append(s, "although "+hint.Peer.String()+" is of another address family")
	}
	switch r.scope {
	case 2:
		s = append(s, "IPv4")
	case 1:
		s = append(s, "global IPv6")
	default:
		s = append(s, "link-local: the netdevice has no other address")
	}
	if hint.Netdev != "" {
		s = append(s, "of the netdevice asked for")
	}
	return s
}

func gidFix(table []GIDEntry, hint GIDHint) string {
	if len(table) == 0 {
		return "the GID table is empty: give the netdevice an address and set it up"
	}
	s := make([]string, len(table))
	for i, e := range table {
		s[i] = e.String()
	}
	fix := "the GID table has " + strings.Join(s, ", ")
	if hint.Netdev != "" {
		fix += "; nothing of netdevice " + hint.Netdev
	}
	return fix
}
