// Package mirror reconciles the settings of a host's netdevice with those of its LAN
// interface at the I/O unit. It decides on changes of the netdevice and on requests to the
// I/O unit.
//
// The operating system and the administrator can change the netdevice at any time; a
// tap.State has its settings. For each setting a Mirror has up to five values:
//
//	agreed    the last value that netdevice and I/O unit had in common
//	desired   the value that the administrator has set, also for later sessions
//	reported  the value requested from the I/O unit in this session
//	applied   the value that the I/O unit has answered
//	rejected  values that are not requested again, until AskAgain or until they are not wanted
//
// If the MAC address or MTU of the netdevice is not the agreed one, the administrator has
// changed it: the host records its own changes as agreed before it makes them.
//
// The methods are events, which return Changes and a Request. The package has no goroutine,
// lock, clock or device. The order in a session is Open, Grant, then Next and Reply in turn,
// with PeerMTU, PeerMAC and Reset in between.
package mirror

import (
	"cmp"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/tap"
)

// Phase determines what happens to the administrator's changes.
type Phase int

// The phases.
const (
	NoSession   Phase = iota // changes are for the next session
	Changing                 // changes wait, because a session is being opened or replaced
	Established              // changes are requested from the I/O unit
)

// Config is the configuration of a host.
type Config struct {
	MAC    protocol.MAC // zero: the I/O unit chooses
	MaxMTU int          // bytes
}

// The parts of a receive filter that can be rejected.
const (
	promiscuousMode  = "promiscuous mode"
	unicastAddresses = "unicast addresses"
	allMulticast     = "all multicast"
)

// Mirror is the reconciler of one netdevice. The caller serializes all calls.
type Mirror struct {
	cfg   Config
	phase Phase

	agreed   agreed
	granted  protocol.MAC // MAC address of the last session; zero before the first
	limit    int          // MTU of the I/O unit; 0 before the first session
	anyMAC   bool         // the next session takes any MAC address
	desired  desired
	reported reported
	applied  Applied
	rejected rejected
	last     *Rejection
	notices  int // how often AskAgain was called
}

type agreed struct {
	mac protocol.MAC
	mtu int
}

// desired has the values that the administrator has set. Zero values are not set.
type desired struct {
	mac protocol.MAC
	mtu int // upper limit: the netdevice has the smaller of this and the I/O unit's MTU
}

// reported has the values requested from the I/O unit; nil: not requested.
type reported struct {
	up          *bool
	mtu         int // MTU that the I/O unit knows
	filter      *protocol.ReceiveFilter
	vlans       *protocol.VLANSet
	unsupported []protocol.CfgType
}

// Applied has the values that the I/O unit applies according to its answers, which may be
// less than was requested; nil: no answer yet.
type Applied struct {
	Filter *protocol.ReceiveFilter
	VLANs  *protocol.VLANSet
}

// rejected has the values that are not requested again.
type rejected struct {
	promisc, allMulti bool
	unicast           []protocol.MAC // refused, and not requested again
	missing           []protocol.MAC // requested, and not granted with the others
	told              []protocol.MAC // further addresses whose rejection was reported
	filter            *protocol.ReceiveFilter
	allVLANs          bool
	vlans             protocol.VLANSet
	oneByOne          bool     // VLANs are requested one at a time, to find the rejected one
	known             []string // parts of the filter rejected before AskAgain, which are not reported again
}

// Rejection is a setting that was rejected by the I/O unit or the configuration.
type Rejection struct {
	What   string    `json:"what"`
	Wanted string    `json:"wanted"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
}

// Changes has the changes to make, in the order of the fields. Zero values mean no change.
type Changes struct {
	Rejected    *Rejection // to be logged
	Unsupported bool       // the I/O unit does not know the request; to be logged
	SessionMTU  int        // MTU for the session's channels
	MAC         protocol.MAC
	MTU         int
	PromiscOff  bool // switch off the netdevice's own promiscuous mode
	AllMultiOff bool // switch off the netdevice's own all-multicast mode
}

// Agreement has what the next process needs to distinguish the administrator's changes of
// the netdevice from those of the host. Zero values are unknown or not set.
type Agreement struct {
	MAC     protocol.MAC // agreed with the I/O unit
	MTU     int          // agreed with the I/O unit; bytes
	Granted bool         // an I/O unit has granted MAC, which is requested from the next one

	WantMAC protocol.MAC // set by the administrator, for the next session
	WantMTU int          // upper limit set by the administrator; bytes
}

const (
	overNIC     = "more than the I/O unit's network card has"
	overMessage = "more addresses than a request to the I/O unit has room for; `promiscuous: yes` in its policy allows more"
	overMaxMTU  = "more than --max-mtu of this host"
)

// New returns the mirror of a netdevice with the given state. earlier is the agreement of a
// previous process, or nil.
func New(cfg Config, state *tap.State, earlier *Agreement) Mirror {
	m := Mirror{cfg: cfg, agreed: agreed{macOf(state.MAC), state.MTU}}
	if earlier == nil {
		return m
	}
	if earlier.MAC.Valid() {
		m.agreed.mac = earlier.MAC
		if earlier.Granted && !earlier.WantMAC.Valid() { // otherwise the administrator has set it
			m.granted = earlier.MAC
		}
	}
	m.agreed.mtu = cmp.Or(earlier.MTU, m.agreed.mtu)
	m.desired = desired{earlier.WantMAC, earlier.WantMTU}
	return m
}

// Agreement returns the present agreement.
func (m *Mirror) Agreement() Agreement {
	return Agreement{
		MAC: m.agreed.mac, MTU: m.agreed.mtu, Granted: m.granted.Valid(),
		WantMAC: m.desired.mac, WantMTU: m.desired.mtu,
	}
}

// Applied returns the values that the I/O unit applies in the session in use.
func (m *Mirror) Applied() Applied { return m.applied }

// LastRejection returns the last setting that was rejected. It is nil if there was none, or
// if the I/O unit has granted a setting of the same kind later.
func (m *Mirror) LastRejection() *Rejection { return m.last }

// SetPhase sets the phase.
func (m *Mirror) SetPhase(p Phase) { m.phase = p }

// Open begins a session. It returns the MAC address to request. A granted address is
// requested from every later I/O unit, because connections and leases depend on it. The
// phase is Changing until the session is established or has failed.
func (m *Mirror) Open(state *tap.State, now time.Time) (ask protocol.MAC, c Changes) {
	c = m.adopt(state, now)
	m.phase = Changing
	var had protocol.MAC
	if m.granted.Valid() && !m.anyMAC {
		had = m.agreed.mac
	}
	m.anyMAC = false
	return cmp.Or(m.desired.mac, m.cfg.MAC, had), c
}

// adopt records the administrator's changes while there is no session, for the next one.
func (m *Mirror) adopt(state *tap.State, now time.Time) (c Changes) {
	if mac := macOf(state.MAC); mac != m.agreed.mac && mac.Valid() {
		m.agreed.mac, m.desired.mac = mac, mac
	}
	switch mtu := state.MTU; {
	case mtu == m.agreed.mtu:
	case mtu > m.cfg.MaxMTU:
		return m.rejectMTU(mtu, now)
	default:
		m.agreed.mtu, m.desired.mtu = mtu, mtu
	}
	return c
}

// rejectMTU sets back an MTU above the configured limit.
func (m *Mirror) rejectMTU(mtu int, now time.Time) Changes {
	return Changes{Rejected: m.reject(protocol.CfgMTU.String(), strconv.Itoa(mtu), overMaxMTU, now), MTU: m.agreed.mtu}
}

// GiveUpMAC is called when an I/O unit has refused a session by its policy, for a reason. It
// gives up the MAC address that the administrator has set, or otherwise the one that the
// last I/O unit has granted. It reports whether there was one, so that the same I/O unit can
// be tried again.
func (m *Mirror) GiveUpMAC(state *tap.State, reason string, now time.Time) (again bool, c Changes) {
	mac := m.desired.mac
	if mac == (protocol.MAC{}) {
		m.anyMAC = m.cfg.MAC == (protocol.MAC{}) && m.granted.Valid()
		return m.anyMAC, c
	}
	m.desired.mac = protocol.MAC{}
	c.Rejected = m.reject(protocol.CfgMAC.String(), mac.String(), reason, now)
	if m.granted.Valid() {
		m.agreed.mac = m.granted
		if macOf(state.MAC) == mac && mac != m.granted {
			c.MAC = m.granted
		}
	}
	return true, c
}

// Grant records the settings that the I/O unit grants to a session that comes into use. The
// administrator's changes since Open stay; Next requests them.
func (m *Mirror) Grant(state *tap.State, mac protocol.MAC, mtu int, now time.Time) (c Changes) {
	before := m.agreed
	m.phase = Changing
	m.granted, m.limit = mac, mtu
	m.agreed = agreed{mac, m.allowedMTU()}
	m.forget()
	if macOf(state.MAC) == before.mac {
		c.MAC = mac
	}
	if state.MTU == before.mtu {
		c.MTU = m.agreed.mtu
		if state.MTU == m.desired.mtu && state.MTU > mtu {
			c.Rejected = m.reject(protocol.CfgMTU.String(), strconv.Itoa(state.MTU), overNIC, now)
		}
	}
	return c
}

// PeerMTU records the new MTU of the I/O unit's network card, and returns that of the
// netdevice, which is smaller if the administrator has set a smaller one. If the
// administrator has just set a larger one, Next requests it.
func (m *Mirror) PeerMTU(state *tap.State, mtu int) (have int, c Changes) {
	mtu = min(mtu, m.cfg.MaxMTU)
	before := m.agreed.mtu
	m.limit, m.reported.mtu = mtu, mtu
	if state.MTU != before && state.MTU < mtu {
		m.desired.mtu = state.MTU // a smaller MTU needs no request
	}
	have = m.allowedMTU()
	m.agreed.mtu, c.SessionMTU = have, mtu
	if state.MTU == before || state.MTU == have {
		c.MTU = have
	}
	return have, c
}

// PeerMAC records a MAC address that the I/O unit has assigned to the host. It replaces the
// one that the administrator had set. If the administrator has just set another one, Next
// requests it.
func (m *Mirror) PeerMAC(state *tap.State, mac protocol.MAC) (c Changes) {
	if macOf(state.MAC) == m.agreed.mac {
		c.MAC = mac
	}
	m.agreed.mac, m.desired.mac = mac, protocol.MAC{}
	return c
}

// Reset resets the administrator's settings. All settings are requested again from the I/O
// unit, which has reset those of the session.
func (m *Mirror) Reset(state *tap.State) Changes {
	m.desired = desired{}
	m.agreed = agreed{m.granted, m.limit}
	m.forget()
	return Changes{MAC: m.granted, MTU: m.limit, PromiscOff: state.PromiscSet, AllMultiOff: state.AllMultiSet}
}

// AskAgain makes Next request the rejected parts of the receive filter again, because the
// I/O unit's policy may have changed. It reports whether there are any. It does not concern
// VLANs, which the I/O unit adds by itself when its policy permits them.
func (m *Mirror) AskAgain() bool {
	m.notices++
	known := m.rejected.ofFilter()
	if m.phase != Established || len(known) == 0 {
		return false
	}
	r := &m.rejected
	if r.missing != nil {
		m.reported.filter = nil // the last request had them, too
	}
	r.promisc, r.allMulti, r.unicast, r.missing, r.filter = false, false, nil, nil, nil
	r.known = slices.DeleteFunc(known, func(what string) bool { return what == unicastAddresses }) // see told
	return true
}

// Rejects reports whether anything of the receive filter is rejected.
func (m *Mirror) Rejects() bool { return len(m.rejected.ofFilter()) > 0 }

// ofFilter returns the rejected parts of the receive filter.
func (r *rejected) ofFilter() (what []string) {
	if r.promisc {
		what = append(what, promiscuousMode)
	}
	if r.allMulti {
		what = append(what, allMulticast)
	}
	if r.unicast != nil || r.missing != nil {
		what = append(what, unicastAddresses)
	}
	if r.filter != nil {
		what = append(what, protocol.CfgFilter.String())
	}
	return what
}

// forget resets the requested, applied and rejected values.
func (m *Mirror) forget() {
	m.reported, m.applied, m.rejected = reported{mtu: m.limit}, Applied{}, rejected{}
}

func (m *Mirror) allowedMTU() int {
	if m.desired.mtu == 0 {
		return m.limit
	}
	return min(m.limit, m.desired.mtu)
}

func (m *Mirror) reject(what, wanted, reason string, now time.Time) *Rejection {
	m.last = &Rejection{What: what, Wanted: wanted, Reason: reason, At: now}
	return m.last
}

// supports reports whether the I/O unit knows requests of type t.
func (m *Mirror) supports(t protocol.CfgType) bool {
	return !slices.Contains(m.reported.unsupported, t)
}

// macOf returns a as a MAC address, or the zero address if it is not one.
func macOf(a net.HardwareAddr) protocol.MAC {
	if len(a) != len(protocol.MAC{}) {
		return protocol.MAC{}
	}
	return protocol.MAC(a)
}
