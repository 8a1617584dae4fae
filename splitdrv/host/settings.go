package host

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/tap"
)

// settings are what the netdevice and the I/O unit have agreed upon, and what
// the host's administrator wants besides.
//
// A netdevice whose MAC address or MTU is another than the agreed one has been
// changed by the administrator: every change of ours is entered here with it.
type settings struct {
	mac     protocol.MAC // agreed
	mtu     int          // agreed
	granted protocol.MAC // by the last welcome
	yield   bool         // the next hello asks for any address
	limit   int          // MTU that the I/O unit allows; 0 before the first session

	wantMAC protocol.MAC // asked for in the next hello; zero: that of the configuration
	wantMTU int          // the netdevice has the smaller one of this, until a reset, and limit; 0: limit

	told    told
	force   force
	refused refused
	last    *Refusal
}

// told is what the I/O unit has been told in the present session; nil: nothing.
type told struct {
	up     *bool
	mtu    int // it knows this one
	filter *protocol.ReceiveFilter
	vlans  *protocol.VLANSet
	deaf   []protocol.CfgType // requests that it does not support
}

// force is what the I/O unit has answered: it may be less than it was asked for.
type force struct {
	filter *protocol.ReceiveFilter
	vlans  *protocol.VLANSet
}

// refused is what the I/O unit does not want to hear again in the present
// session, until the netdevice has stopped wanting it.
type refused struct {
	promisc, allMulti bool
	unicast           []protocol.MAC // this list
	filter            *protocol.ReceiveFilter
	allVLANs          bool
	vlans             protocol.VLANSet
	singly            bool // VLANs are asked for one at a time, to find the ones that it refuses
}

// Refusal is a setting that the I/O unit did not take.
type Refusal struct {
	What   string    `json:"what"`
	Wanted string    `json:"wanted"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
}

// what is what was refused, "" if nobody is to be told.
func (r *Refusal) what() string {
	if r == nil {
		return ""
	}
	return r.What
}

// What a receive filter is refused for.
const (
	promiscuousMode  = "promiscuous mode"
	unicastAddresses = "unicast addresses"
)

// nextMTU is the MTU for the netdevice.
func (s *settings) nextMTU() int {
	if s.wantMTU == 0 {
		return s.limit
	}
	return min(s.limit, s.wantMTU)
}

// session forgets what the last session was told.
func (s *settings) session() { s.told, s.force, s.refused = told{mtu: s.limit}, force{}, refused{} }

// adopt makes an administrator's change, made while there is no session, a wish
// for the next. It returns an MTU that cannot be had, 0 if none.
func (s *settings) adopt(state *tap.State, maxMTU int) (refusedMTU int) {
	if mac := macOf(state.MAC); mac != s.mac && mac.Valid() {
		s.mac, s.wantMAC = mac, mac
	}
	switch mtu := state.MTU; {
	case mtu == s.mtu:
	case mtu > maxMTU:
		return mtu
	default:
		s.mtu, s.wantMTU = mtu, mtu
	}
	return 0
}

// request is one that the I/O unit is to get.
type request struct {
	t      protocol.CfgType
	data   []byte
	wanted string // for people
	mac    protocol.MAC
	mtu    int
	again  bool // an MTU that was agreed before
	told   int  // the MTU that the I/O unit knew
	limit  int  // and what it allowed
	up     bool
	filter protocol.ReceiveFilter
	vlans  protocol.VLANSet
}

// dispensable reports whether one can live without what is asked for: not with
// an address that nobody else knows, nor with a promise of frames that do not
// come.
func (r *request) dispensable() bool {
	return r.t != protocol.CfgMAC && !r.filter.Promisc && !r.filter.AllMulti && len(r.filter.Unicast) == 0
}

// enter enters the answer to a request, which was agreed to.
func (f *force) enter(r *request, data []byte) {
	if r.t == protocol.CfgFilter {
		f.filter = &r.filter
		if got, err := protocol.DecodeReceiveFilter(data); err == nil {
			f.filter = &got
		}
	}
	if r.t == protocol.CfgVLAN {
		f.vlans = &r.vlans
		if got, err := protocol.DecodeVLANSet(data); err == nil {
			f.vlans = &got
		}
	}
}

// next returns the next request that makes the I/O unit follow the state, nil
// if none is due.
func (s *settings) next(state *tap.State) *request {
	s.refused.forget(state)
	can := func(t protocol.CfgType) bool { return !slices.Contains(s.told.deaf, t) }
	if can(protocol.CfgLinkState) && (s.told.up == nil || *s.told.up != state.Up) {
		wanted := "down"
		if state.Up {
			wanted = "up"
		}
		return &request{
			t: protocol.CfgLinkState, wanted: wanted, up: state.Up,
			data: protocol.AppendLinkState(nil, protocol.LinkState{Up: state.Up}),
		}
	}
	if mac := macOf(state.MAC); mac != s.mac && mac.Valid() {
		return &request{t: protocol.CfgMAC, wanted: mac.String(), mac: mac, data: protocol.AppendMAC(nil, mac)}
	}
	if mtu := state.MTU; mtu != s.mtu || (mtu != s.told.mtu && can(protocol.CfgMTU)) {
		return &request{
			t: protocol.CfgMTU, wanted: fmt.Sprint(mtu), mtu: mtu, data: protocol.AppendMTU(nil, mtu),
			again: mtu == s.mtu, told: s.told.mtu, limit: s.limit,
		}
	}
	if f := s.wantFilter(state); can(protocol.CfgFilter) && (s.told.filter == nil || !s.told.filter.Equal(f)) &&
		(s.refused.filter == nil || !s.refused.filter.Equal(f)) {
		return &request{t: protocol.CfgFilter, wanted: describe(f), filter: f, data: protocol.AppendReceiveFilter(nil, f)}
	}
	if v := s.wantVLANs(state); can(protocol.CfgVLAN) && (s.told.vlans == nil || *s.told.vlans != v) {
		return &request{t: protocol.CfgVLAN, wanted: v.String(), vlans: v, data: protocol.AppendVLANSet(nil, v)}
	}
	return nil
}

// forget forgets refusals of what is no longer wanted.
func (r *refused) forget(state *tap.State) {
	r.promisc = r.promisc && state.Promisc
	r.allMulti = r.allMulti && (state.AllMulti || state.Promisc)
	r.allVLANs = r.allVLANs && (state.Trunk || state.Promisc)
	var kept protocol.VLANSet
	for _, v := range state.VLANs {
		if r.vlans.Has(uint16(v)) {
			kept.Add(uint16(v))
		}
	}
	r.vlans = kept
}

// wantFilter is the receive filter that the state needs, without what was
// refused: all multicast frames at least where it does not get all frames. With
// more groups than a message holds it wants all of them.
func (s *settings) wantFilter(state *tap.State) protocol.ReceiveFilter {
	f := protocol.ReceiveFilter{
		Promisc:  state.Promisc && !s.refused.promisc,
		AllMulti: (state.AllMulti || (state.Promisc && s.refused.promisc)) && !s.refused.allMulti,
	}
	for _, a := range state.Unicast {
		if m := macOf(a); m.Valid() {
			f.Unicast = append(f.Unicast, m)
		}
	}
	if len(f.Unicast) > 0 && slices.Equal(f.Unicast, s.refused.unicast) {
		f.Unicast = nil
	}
	for _, a := range state.Multicast {
		if len(a) == len(protocol.Group{}) {
			f.Multicast = append(f.Multicast, protocol.Group(a))
		}
	}
	if len(f.Unicast)+len(f.Multicast) > protocol.MaxFilterAddresses {
		f.AllMulti, f.Multicast = true, nil
	}
	if len(f.Unicast) > protocol.MaxFilterAddresses {
		f.Promisc, f.Unicast = true, nil
	}
	return f
}

// wantVLANs are the VLANs that the state needs, without those refused.
func (s *settings) wantVLANs(state *tap.State) protocol.VLANSet {
	if (state.Trunk || (state.Promisc && !s.refused.promisc)) && !s.refused.allVLANs {
		return protocol.AllVLANs()
	}
	var want, have protocol.VLANSet
	if s.told.vlans != nil {
		have = *s.told.vlans
	}
	asked := false
	for _, id := range state.VLANs {
		v := uint16(id)
		switch {
		case s.refused.vlans.Has(v):
		case s.refused.singly && !have.Has(v):
			if !asked {
				asked = true
				want.Add(v)
			}
		default:
			want.Add(v)
		}
	}
	if !asked {
		s.refused.singly = false
	}
	return want
}

// accept enters what the I/O unit has agreed to.
func (s *settings) accept(r *request) {
	switch r.t {
	case protocol.CfgLinkState:
		s.told.up = &r.up
	case protocol.CfgMAC:
		s.mac, s.wantMAC = r.mac, r.mac
	case protocol.CfgMTU:
		// The I/O unit's own MTU may have changed meanwhile.
		if r.told == s.told.mtu {
			s.told.mtu = r.mtu
		}
		if r.again {
			return
		}
		if r.limit == s.limit {
			s.limit = max(s.limit, r.mtu)
		}
		s.wantMTU = r.mtu
		s.mtu = s.nextMTU()
	case protocol.CfgFilter:
		s.told.filter, s.refused.filter = &r.filter, nil
	case protocol.CfgVLAN:
		s.told.vlans = &r.vlans
	default: // next makes no others
	}
}

// refuse enters what the I/O unit has refused, and returns what to tell people
// about it; nothing while the culprit is still to be found.
func (s *settings) refuse(r *request, reason string) *Refusal {
	what, wanted := r.t.String(), r.wanted
	switch r.t {
	case protocol.CfgLinkState:
		s.told.up = &r.up // it is not asked again
	case protocol.CfgMTU:
		if r.again && r.told == s.told.mtu {
			s.told.mtu = r.mtu // that is no news to it
		}
	case protocol.CfgFilter:
		// What comes first is the likeliest to be forbidden. The rest is asked
		// for again without it.
		switch {
		case r.filter.Promisc && !s.refused.promisc:
			s.refused.promisc, what, wanted = true, promiscuousMode, "on"
		case len(r.filter.Unicast) > 0:
			s.refused.unicast, what, wanted = r.filter.Unicast, unicastAddresses, fmt.Sprint(r.filter.Unicast)
		case r.filter.AllMulti && !s.refused.allMulti:
			s.refused.allMulti, what, wanted = true, "all multicast", "on"
		default:
			s.refused.filter = &r.filter
		}
	case protocol.CfgVLAN:
		var have protocol.VLANSet
		if s.told.vlans != nil {
			have = *s.told.vlans
		}
		var fresh []uint16
		for v := range r.vlans.All() {
			if !have.Has(v) {
				fresh = append(fresh, v)
			}
		}
		switch {
		case r.vlans == protocol.AllVLANs():
			s.refused.allVLANs = true
		case len(fresh) > 1:
			s.refused.singly = true
			return nil
		case len(fresh) == 1:
			s.refused.vlans.Add(fresh[0])
			wanted = fmt.Sprint(fresh[0])
		default:
			s.told.vlans = &r.vlans // fewer than before: it goes on sending them
		}
	default: // there is nothing to remember
	}
	s.last = &Refusal{What: what, Wanted: wanted, Reason: reason, At: time.Now()}
	return s.last
}

// describe is a filter for people.
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

// macOf is the zero address for what is none.
func macOf(a net.HardwareAddr) protocol.MAC {
	if len(a) != len(protocol.MAC{}) {
		return protocol.MAC{}
	}
	return protocol.MAC(a)
}

// helloMAC is the address to ask for: one that was granted stays, whichever I/O
// unit is next, because connections and leases depend on it.
func (s *settings) helloMAC(configured protocol.MAC) protocol.MAC {
	var had protocol.MAC
	if s.granted.Valid() && !s.yield {
		had = s.mac
	}
	return cmp.Or(s.wantMAC, configured, had)
}
