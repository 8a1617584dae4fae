package mirror

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/tap"
)

// Request is a configuration request for the I/O unit.
type Request struct {
	Type protocol.CfgType
	Data []byte
	// Refusal is the I/O unit's reason for refusing the request or a part of it, "" if it has
	// told none. The caller sets it before Reply.
	Refusal string

	wanted string // for display
	up     bool
	mac    protocol.MAC
	mtu    requestMTU
	filter protocol.ReceiveFilter
	vlans  protocol.VLANSet

	notices int // Mirror.notices when the request was made
}

type requestMTU struct {
	mtu      int
	agreed   bool // it is the agreed MTU
	reported int  // MTU that the I/O unit knew when the request was made
	limit    int  // MTU of the I/O unit when the request was made
}

// Next returns the first request that is due to make the I/O unit follow the state, or nil.
// While there is no session, it records the administrator's changes for the next one.
func (m *Mirror) Next(state *tap.State, now time.Time) (r *Request, c Changes) {
	switch m.phase {
	case NoSession:
		return nil, m.adopt(state, now)
	case Changing:
		return nil, c
	case Established:
	}
	m.rejected.forget(state)
	if m.supports(protocol.CfgLinkState) && (m.reported.up == nil || *m.reported.up != state.Up) {
		wanted := "down"
		if state.Up {
			wanted = "up"
		}
		data := protocol.AppendLinkState(nil, protocol.LinkState{Up: state.Up})
		return &Request{Type: protocol.CfgLinkState, Data: data, wanted: wanted, up: state.Up}, c
	}
	if mac := macOf(state.MAC); mac != m.agreed.mac && mac.Valid() {
		return &Request{Type: protocol.CfgMAC, Data: protocol.AppendMAC(nil, mac), wanted: mac.String(), mac: mac}, c
	}
	switch mtu := state.MTU; {
	case mtu != m.agreed.mtu && mtu > m.cfg.MaxMTU:
		return nil, m.rejectMTU(mtu, now)
	case mtu != m.agreed.mtu, mtu != m.reported.mtu && m.supports(protocol.CfgMTU):
		return &Request{
			Type: protocol.CfgMTU, Data: protocol.AppendMTU(nil, mtu), wanted: strconv.Itoa(mtu),
			mtu: requestMTU{mtu: mtu, agreed: mtu == m.agreed.mtu, reported: m.reported.mtu, limit: m.limit},
		}, c
	}
	f := m.wantFilter(state)
	if m.supports(protocol.CfgFilter) && !same(m.reported.filter, f) && !same(m.rejected.filter, f) {
		data := protocol.AppendReceiveFilter(nil, f)
		return &Request{Type: protocol.CfgFilter, Data: data, wanted: describe(f), filter: f, notices: m.notices}, c
	}
	if v := m.wantVLANs(state); m.supports(protocol.CfgVLAN) && (m.reported.vlans == nil || *m.reported.vlans != v) {
		return &Request{Type: protocol.CfgVLAN, Data: protocol.AppendVLANSet(nil, v), wanted: v.String(), vlans: v}, c
	}
	return nil, c
}

func same(a *protocol.ReceiveFilter, b protocol.ReceiveFilter) bool { return a != nil && a.Equal(b) }

// forget removes the rejections of settings that are no longer wanted.
func (r *rejected) forget(state *tap.State) {
	r.promisc = r.promisc && (state.Promisc || len(state.Unicast) > protocol.MaxFilterAddresses)
	r.allMulti = r.allMulti && (state.AllMulti || state.Promisc)
	r.allVLANs = r.allVLANs && (state.Trunk || state.Promisc)
	if !state.Promisc && !state.AllMulti && len(state.Unicast) == 0 {
		r.known = nil
	}
	if r.told != nil {
		want := addresses(state)
		gone := func(m protocol.MAC) bool { return !slices.Contains(want, m) }
		r.told = slices.DeleteFunc(r.told, gone)
		r.unicast, r.missing = slices.DeleteFunc(r.unicast, gone), slices.DeleteFunc(r.missing, gone)
		if len(r.unicast) == 0 {
			r.unicast = nil
		}
		if len(r.missing) == 0 {
			r.missing = nil
		}
	}
	var kept protocol.VLANSet
	for _, v := range state.VLANs {
		if r.vlans.Has(uint16(v)) {
			kept.Add(uint16(v))
		}
	}
	r.vlans = kept
}

// wantFilter returns the receive filter that the state needs, without the rejected parts. If
// promiscuous mode is rejected, it has all multicast frames instead. If there are more
// groups than a message holds, it has all multicast frames. If there are more addresses than a
// message holds, it is promiscuous, or else has those that are granted and as many others as fit.
func (m *Mirror) wantFilter(state *tap.State) protocol.ReceiveFilter {
	f := protocol.ReceiveFilter{
		Promisc:  state.Promisc && !m.rejected.promisc,
		AllMulti: (state.AllMulti || (state.Promisc && m.rejected.promisc)) && !m.rejected.allMulti,
	}
	for _, mac := range addresses(state) {
		if !slices.Contains(m.rejected.unicast, mac) {
			f.Unicast = append(f.Unicast, mac)
		}
	}
	for _, a := range state.Multicast {
		if len(a) == len(protocol.Group{}) {
			f.Multicast = append(f.Multicast, protocol.Group(a))
		}
	}
	if len(f.Unicast)+len(f.Multicast) > protocol.MaxFilterAddresses {
		f.AllMulti, f.Multicast = true, nil
	}
	switch most := protocol.MaxFilterAddresses; {
	case len(f.Unicast) <= most:
	case !m.rejected.promisc:
		f.Promisc, f.Unicast = true, nil
	default:
		granted := m.granting()
		room := most
		for _, mac := range f.Unicast {
			if granted.Has(mac) {
				room--
			}
		}
		f.Unicast = slices.DeleteFunc(f.Unicast, func(mac protocol.MAC) bool {
			if granted.Has(mac) {
				return false
			}
			room--
			return room < 0
		})
	}
	return f
}

// granting returns the further addresses that the I/O unit grants.
func (m *Mirror) granting() protocol.MACSet {
	if m.applied.Filter == nil {
		return nil
	}
	return protocol.NewMACSet(m.applied.Filter.Unicast)
}

// addresses returns the further addresses of the netdevice.
func addresses(state *tap.State) (macs []protocol.MAC) {
	for _, a := range state.Unicast {
		if mac := macOf(a); mac.Valid() {
			macs = append(macs, mac)
		}
	}
	return macs
}

// wantVLANs returns the VLANs that the state needs, without the rejected ones.
func (m *Mirror) wantVLANs(state *tap.State) protocol.VLANSet {
	if (state.Trunk || (state.Promisc && !m.rejected.promisc)) && !m.rejected.allVLANs {
		return protocol.AllVLANs()
	}
	var want protocol.VLANSet
	have := m.reportedVLANs()
	asked := false
	for _, id := range state.VLANs {
		v := uint16(id)
		switch {
		case m.rejected.vlans.Has(v):
		case m.rejected.oneByOne && !have.Has(v):
			if !asked {
				asked = true
				want.Add(v)
			}
		default:
			want.Add(v)
		}
	}
	m.rejected.oneByOne = m.rejected.oneByOne && asked
	return want
}

// reportedVLANs returns the VLANs that were requested.
func (m *Mirror) reportedVLANs() (have protocol.VLANSet) {
	if m.reported.vlans != nil {
		have = *m.reported.vlans
	}
	return have
}

func describe(f protocol.ReceiveFilter) string {
	text := fmt.Sprintf("%d groups", len(f.Multicast))
	if len(f.Unicast) > 0 {
		text += fmt.Sprintf(", %d more addresses", len(f.Unicast))
	}
	if f.AllMulti {
		text += ", all multicast"
	}
	if f.Promisc {
		text += ", promiscuous"
	}
	return text
}
