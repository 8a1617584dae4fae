package mirror

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/tap"
)

// policyKeys are the keys of an I/O unit's policy that settings depend on.
var policyKeys = map[string]string{
	protocol.CfgMAC.String():  "macs",
	protocol.CfgVLAN.String(): "vlans",
	unicastAddresses:          "macs",
	promiscuousMode:           "promiscuous",
}

// Reply enters the I/O unit's answer to a request. The netdevice is set back where
// that is not what was asked for, unless it has been changed again since. Nothing is
// rejected yet while the rejected VLAN is still to be found.
func (m *Mirror) Reply(
	r *Request, status protocol.CfgStatus, data []byte, state *tap.State, now time.Time,
) (c Changes) {
	switch {
	case m.phase != Established:
		return c
	case status == protocol.CfgUnsupported && r.dispensable():
		m.reported.unsupported = append(m.reported.unsupported, r.Type)
		if r.Type == protocol.CfgMTU {
			m.acceptMTU(r.mtu, r.mtu.mtu)
		}
		return Changes{Unsupported: true}
	}
	accepted, what, wanted := status == protocol.CfgOK, r.Type.String(), r.wanted
	switch r.Type {
	case protocol.CfgLinkState:
		m.reported.up = &r.up // it is not asked again
	case protocol.CfgMAC:
		if accepted {
			mac := answered(data, protocol.DecodeMAC, r.mac)
			m.agreed.mac, m.desired.mac = mac, mac
			m.grant(what)
		}
		if macOf(state.MAC) == r.mac && r.mac != m.agreed.mac {
			c.MAC = m.agreed.mac
		}
	case protocol.CfgMTU:
		if accepted {
			m.acceptMTU(r.mtu, min(r.mtu.mtu, answered(data, protocol.DecodeMTU, r.mtu.mtu)))
			c.SessionMTU = m.limit
			if !r.mtu.agreed {
				m.grant(what)
			}
		} else if r.mtu.agreed && r.mtu.reported == m.reported.mtu {
			m.reported.mtu = r.mtu.mtu // that is no news to it
		}
		if state.MTU == r.mtu.mtu && r.mtu.mtu != m.agreed.mtu {
			c.MTU = m.agreed.mtu
		}
	case protocol.CfgFilter:
		if accepted {
			applied := answered(data, protocol.DecodeReceiveFilter, r.filter)
			m.reported.filter, m.rejected.filter, m.applied.Filter = &r.filter, nil, &applied
			m.grantFilter(&r.filter)
		} else {
			what, wanted = m.refuseFilter(r)
		}
		c.PromiscOff = m.rejected.promisc && state.PromiscSet
		c.AllMultiOff = !c.PromiscOff && m.rejected.allMulti && state.AllMultiSet
	case protocol.CfgVLAN:
		if accepted {
			applied := answered(data, protocol.DecodeVLANSet, r.vlans)
			m.reported.vlans, m.applied.VLANs = &r.vlans, &applied
			m.grantVLANs(&applied)
		} else if wanted = m.refuseVLANs(r); wanted == "" {
			return c
		}
	default: // there are no other requests
	}
	if !accepted {
		reason := "the I/O unit: " + status.String()
		if key := policyKeys[what]; key != "" && status == protocol.CfgDenied {
			reason += "; `" + key + "` in its policy says what this host may have"
		}
		c.Rejected = m.reject(what, wanted, reason, now)
		if slices.Contains(m.rejected.known, what) {
			c.Rejected = nil
		}
	}
	return c
}

// answered is what the I/O unit says in its answer, or what it was asked for if it says
// nothing.
func answered[T any](data []byte, decode func([]byte) (T, error), asked T) T {
	if got, err := decode(data); err == nil {
		return got
	}
	return asked
}

// dispensable reports whether one can do without what is asked for: not without an
// address that nobody else knows, nor without frames that somebody waits for.
func (r *Request) dispensable() bool {
	return r.Type != protocol.CfgMAC && !r.filter.Promisc && !r.filter.AllMulti && len(r.filter.Unicast) == 0
}

// acceptMTU enters an MTU that the I/O unit takes. Its own may have changed since it
// was asked.
func (m *Mirror) acceptMTU(asked requestMTU, mtu int) {
	if asked.reported == m.reported.mtu {
		m.reported.mtu = mtu
	}
	if asked.agreed {
		return
	}
	if asked.limit == m.limit {
		m.limit = max(m.limit, mtu)
	}
	m.desired.mtu = mtu
	m.agreed.mtu = m.allowedMTU()
}

// grant forgets that a setting was rejected last: now the host has one that it asked for.
func (m *Mirror) grant(what string) {
	if m.last != nil && m.last.What == what {
		m.last = nil
	}
}

// grantFilter grants what a receive filter asks for. That others ask for less grants
// nothing.
func (m *Mirror) grantFilter(f *protocol.ReceiveFilter) {
	m.grant(protocol.CfgFilter.String())
	if f.Promisc {
		m.grant(promiscuousMode)
		m.grant(allMulticast)
	}
	if f.AllMulti {
		m.grant(allMulticast)
	}
	if len(f.Unicast) > 0 {
		m.grant(unicastAddresses)
	}
}

// grantVLANs grants the VLAN that was rejected last, if it is among those.
func (m *Mirror) grantVLANs(v *protocol.VLANSet) {
	if m.last == nil {
		return
	}
	if id, err := strconv.ParseUint(m.last.Wanted, 10, 16); err == nil && v.Has(uint16(id)) || *v == protocol.AllVLANs() {
		m.grant(protocol.CfgVLAN.String())
	}
}

// refuseFilter takes out of the filter what is likeliest to be forbidden. The rest is
// asked for again without it.
func (m *Mirror) refuseFilter(r *Request) (what, wanted string) {
	switch {
	case r.filter.Promisc && !m.rejected.promisc:
		m.rejected.promisc = true
		return promiscuousMode, "on"
	case len(r.filter.Unicast) > 0:
		m.rejected.unicast = r.filter.Unicast
		return unicastAddresses, fmt.Sprint(r.filter.Unicast)
	case r.filter.AllMulti && !m.rejected.allMulti:
		m.rejected.allMulti = true
		return allMulticast, "on"
	default:
		m.rejected.filter = &r.filter
		return r.Type.String(), r.wanted
	}
}

// refuseVLANs finds out which VLAN was refused; empty if more requests are needed for
// that.
func (m *Mirror) refuseVLANs(r *Request) (wanted string) {
	have := m.reportedVLANs()
	var fresh []uint16
	for v := range r.vlans.All() {
		if !have.Has(v) {
			fresh = append(fresh, v)
		}
	}
	switch {
	case r.vlans == protocol.AllVLANs():
		m.rejected.allVLANs = true
	case len(fresh) > 1:
		m.rejected.oneByOne = true
		return ""
	case len(fresh) == 1:
		m.rejected.vlans.Add(fresh[0])
		return fmt.Sprint(fresh[0])
	default:
		m.reported.vlans = &r.vlans // fewer than before: it goes on sending them
	}
	return r.wanted
}
