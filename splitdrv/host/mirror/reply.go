package mirror

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/tap"
)

// policyKeys has the key of an I/O unit's policy on which each setting depends.
var policyKeys = map[string]string{
	protocol.CfgMAC.String():  "macs",
	protocol.CfgVLAN.String(): "vlans",
	unicastAddresses:          "macs",
	promiscuousMode:           "promiscuous",
}

// Reply records the I/O unit's answer to a request. If the answer differs from the request,
// the netdevice is set back, unless it has changed again since. If one of several VLANs was
// rejected, further requests find out which one before a rejection is recorded.
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
		m.reported.up = &r.up // not requested again
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
			m.reported.mtu = r.mtu.mtu // the I/O unit knows it now
		}
		if state.MTU == r.mtu.mtu && r.mtu.mtu != m.agreed.mtu {
			c.MTU = m.agreed.mtu
		}
	case protocol.CfgFilter:
		if accepted {
			applied := answered(data, protocol.DecodeReceiveFilter, r.filter)
			m.reported.filter, m.rejected.filter, m.applied.Filter = &r.filter, nil, &applied
			c.Rejected = m.partly(r, state, now)
			m.grantFilter(&r.filter)
		} else {
			what, wanted = m.refuseFilter(r)
		}
		if m.notices != r.notices {
			defer m.AskAgain() // it may have been about this request
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
		c.Rejected = m.reject(what, wanted, reasonOf(r, what, status), now)
		if slices.Contains(m.rejected.known, what) ||
			what == unicastAddresses && len(lacking(m.rejected.unicast, m.rejected.told)) == 0 {
			c.Rejected = nil
		}
		m.rejected.told = slices.Concat(m.rejected.told, m.rejected.unicast)
	}
	return c
}

// reasonOf returns the reason for which a setting was rejected.
func reasonOf(r *Request, what string, status protocol.CfgStatus) string {
	key := policyKeys[what]
	switch {
	case r.Refusal != "":
		return "the I/O unit: " + r.Refusal
	case status == protocol.CfgDenied && key != "":
		return "the I/O unit: " + status.String() + "; `" + key + "` in its policy says what this host may have"
	default:
		return "the I/O unit: " + status.String()
	}
}

// Partly reports whether an answer to a request grants less than was requested, so that the
// I/O unit should be asked for the reason.
func (r *Request) Partly(data []byte) bool {
	return r.Type == protocol.CfgFilter &&
		len(lacking(r.filter.Unicast, answered(data, protocol.DecodeReceiveFilter, r.filter).Unicast)) > 0
}

// lacking returns those of the addresses that are not in got.
func lacking(asked, got []protocol.MAC) (macs []protocol.MAC) {
	set := protocol.NewMACSet(got)
	for _, a := range asked {
		if !set.Has(a) {
			macs = append(macs, a)
		}
	}
	return macs
}

// partly records the further addresses that the I/O unit has not granted together with others,
// and those for which the message had no room. It returns a rejection of those that were not
// rejected before. A promiscuous host lacks only what the I/O unit gives a reason for.
func (m *Mirror) partly(r *Request, state *tap.State, now time.Time) *Rejection {
	reason := ""
	missing := lacking(r.filter.Unicast, m.applied.Filter.Unicast)
	if m.applied.Filter.Promisc && r.Refusal == "" {
		missing = nil
	}
	if len(missing) > 0 {
		reason = reasonOf(r, unicastAddresses, protocol.CfgDenied)
	}
	if want := addresses(state); len(want) > protocol.MaxFilterAddresses && !m.applied.Filter.Promisc {
		missing = append(missing, lacking(lacking(want, r.filter.Unicast), m.rejected.unicast)...)
		reason = cmp.Or(reason, overMessage)
	}
	fresh := lacking(missing, m.rejected.told)
	m.rejected.missing, m.rejected.told = missing, slices.Concat(missing, m.rejected.unicast)
	if len(fresh) == 0 {
		return nil
	}
	return m.reject(unicastAddresses, list(fresh), reason, now)
}

// list lists the first ones of some addresses for display.
func list(macs []protocol.MAC) string {
	const shown = 3
	text := fmt.Sprint(macs[:min(len(macs), shown)])
	if more := len(macs) - shown; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// answered returns the value in the I/O unit's answer, or the requested one if there is
// none.
func answered[T any](data []byte, decode func([]byte) (T, error), asked T) T {
	if got, err := decode(data); err == nil {
		return got
	}
	return asked
}

// dispensable reports whether the host works without the requested setting. It does not
// without a MAC address that is not known to the LAN, or without frames that a program
// needs.
func (r *Request) dispensable() bool {
	return r.Type != protocol.CfgMAC && !r.filter.Promisc && !r.filter.AllMulti && len(r.filter.Unicast) == 0
}

// acceptMTU records an MTU that the I/O unit has accepted. The I/O unit's own MTU may have
// changed since the request.
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

// grant clears the last rejection if it is of the given setting, because the I/O unit has
// granted a request for it.
func (m *Mirror) grant(what string) {
	if m.last != nil && m.last.What == what {
		m.last = nil
	}
}

// grantFilter calls grant for each part that a receive filter requests.
func (m *Mirror) grantFilter(f *protocol.ReceiveFilter) {
	m.grant(protocol.CfgFilter.String())
	if f.Promisc {
		m.grant(promiscuousMode)
		m.grant(allMulticast)
	}
	if f.AllMulti {
		m.grant(allMulticast)
	}
	if len(f.Unicast) > 0 && m.rejected.missing == nil && m.rejected.unicast == nil {
		m.grant(unicastAddresses)
	}
}

// grantVLANs calls grant if the VLAN that was rejected last is in v.
func (m *Mirror) grantVLANs(v *protocol.VLANSet) {
	if m.last == nil {
		return
	}
	if id, err := strconv.ParseUint(m.last.Wanted, 10, 16); err == nil && v.Has(uint16(id)) || *v == protocol.AllVLANs() {
		m.grant(protocol.CfgVLAN.String())
	}
}

// refuseFilter rejects the part of a refused filter that is the most likely to be forbidden.
// Next requests the rest without it.
func (m *Mirror) refuseFilter(r *Request) (what, wanted string) {
	switch {
	case r.filter.Promisc && !m.rejected.promisc:
		m.rejected.promisc = true
		return promiscuousMode, "on"
	case len(r.filter.Unicast) > 0:
		// Those that were granted before may stay.
		refused := lacking(r.filter.Unicast, slices.Collect(m.granting().All()))
		if len(refused) == 0 {
			refused = r.filter.Unicast
		}
		m.rejected.unicast = append(slices.Clone(m.rejected.unicast), refused...)
		return unicastAddresses, list(refused)
	case r.filter.AllMulti && !m.rejected.allMulti:
		m.rejected.allMulti = true
		return allMulticast, "on"
	default:
		m.rejected.filter = &r.filter
		return r.Type.String(), r.wanted
	}
}

// refuseVLANs returns which VLAN was refused, or "" if more requests are needed to find it.
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
		m.reported.vlans = &r.vlans // fewer VLANs were refused: the I/O unit still sends the others
	}
	return r.wanted
}
