// Package mirror reconciles a host's netdevice with the I/O unit behind it: it
// decides what the netdevice is to be, and what the I/O unit is to be asked for.
//
// The operating system and the administrator change the netdevice when they
// like; its present settings come as a tap.State. Of each setting a Mirror knows
//
//	agreed    what netdevice and I/O unit had in common last
//	desired   what the administrator has set, for later sessions too
//	reported  what the I/O unit has been asked for in this session
//	applied   what it answered that it does
//	rejected  what it is not asked for again, until AskAgain or nobody wants it any more
//
// A netdevice whose MAC address or MTU is not the agreed one has been changed by
// the administrator: each change of the host's own is entered as agreed first.
//
// The methods are events. They return what is to be done, as Changes and as a
// Request, and do nothing themselves: there is no goroutine, lock, clock or device
// here. In a session the order is Open, Grant, then Next and Reply in turn, with
// PeerMTU, PeerMAC and Reset between them.
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

// Phase says whose the administrator's changes are.
type Phase int

// The phases.
const (
	NoSession   Phase = iota // they are for the next session
	Changing                 // they have to wait: a session is being opened or replaced
	Established              // the I/O unit is asked for them
)

// Config is what a host is configured to want.
type Config struct {
	MAC    protocol.MAC // zero leaves it to the I/O unit
	MaxMTU int          // bytes
}

// What a receive filter is rejected for.
const (
	promiscuousMode  = "promiscuous mode"
	unicastAddresses = "unicast addresses"
	allMulticast     = "all multicast"
)

// Mirror is the reconciler of one netdevice. It belongs to whoever changes that.
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
}

type agreed struct {
	mac protocol.MAC
	mtu int
}

// desired is what the administrator has set. Zero values are nothing.
type desired struct {
	mac protocol.MAC
	mtu int // the most; the netdevice has the smaller one of this and the I/O unit's
}

// reported is what the I/O unit has been asked for; nil: nothing.
type reported struct {
	up          *bool
	mtu         int // it knows this one
	filter      *protocol.ReceiveFilter
	vlans       *protocol.VLANSet
	unsupported []protocol.CfgType
}

// Applied is what the I/O unit has answered that it does, which may be less than
// it was asked for; nil: it has not answered.
type Applied struct {
	Filter *protocol.ReceiveFilter
	VLANs  *protocol.VLANSet
}

// rejected is what the I/O unit is not asked for again.
type rejected struct {
	promisc, allMulti bool
	unicast           []protocol.MAC // this list
	filter            *protocol.ReceiveFilter
	allVLANs          bool
	vlans             protocol.VLANSet
	oneByOne          bool     // VLANs are asked for one at a time, to find the rejected ones
	known             []string // what of the filter had been rejected at AskAgain: no news if it is again
}

// Rejection is a setting that the netdevice or the I/O unit cannot have.
type Rejection struct {
	What   string    `json:"what"`
	Wanted string    `json:"wanted"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
}

// Changes are what is to be done, in the order of the fields. Zero values are
// nothing.
type Changes struct {
	Rejected    *Rejection // to be logged
	Unsupported bool       // what was asked for is not known to the I/O unit; to be logged
	SessionMTU  int        // MTU for the session's channels
	MAC         protocol.MAC
	MTU         int
	PromiscOff  bool // the netdevice's own setting
	AllMultiOff bool // the netdevice's own setting
}

// Agreement is what the next process has to know of the netdevice to tell what
// an administrator does with it from what the host did. Zero values are not known,
// or not wanted.
type Agreement struct {
	MAC     protocol.MAC // agreed with the I/O unit
	MTU     int          // agreed with the I/O unit; bytes
	Granted bool         // an I/O unit has granted the MAC address: the next one is asked for it

	WantMAC protocol.MAC // the administrator's, for the next session
	WantMTU int          // the administrator's: the most that he wants; bytes
}

const (
	overNIC    = "more than the I/O unit's network card has"
	overMaxMTU = "more than --max-mtu of this host"
)

// New is the mirror of a netdevice in that state. It goes on from an earlier
// process's agreement, if that is not nil.
func New(cfg Config, state *tap.State, earlier *Agreement) Mirror {
	m := Mirror{cfg: cfg, agreed: agreed{macOf(state.MAC), state.MTU}}
	if earlier == nil {
		return m
	}
	if earlier.MAC.Valid() {
		m.agreed.mac = earlier.MAC
		if earlier.Granted && !earlier.WantMAC.Valid() { // or it is the administrator's
			m.granted = earlier.MAC
		}
	}
	m.agreed.mtu = cmp.Or(earlier.MTU, m.agreed.mtu)
	m.desired = desired{earlier.WantMAC, earlier.WantMTU}
	return m
}

// Agreement is the present one.
func (m *Mirror) Agreement() Agreement {
	return Agreement{
		MAC: m.agreed.mac, MTU: m.agreed.mtu, Granted: m.granted.Valid(),
		WantMAC: m.desired.mac, WantMTU: m.desired.mtu,
	}
}

// Applied is what the I/O unit does in the present session.
func (m *Mirror) Applied() Applied { return m.applied }

// LastRejection is the last setting that was rejected; nil if none was, or the I/O unit has
// granted one of its kind since.
func (m *Mirror) LastRejection() *Rejection { return m.last }

// SetPhase says whose changes are from now on.
func (m *Mirror) SetPhase(p Phase) { m.phase = p }

// Open begins a session. It returns the MAC address to ask for: one that was
// granted stays, whichever I/O unit is next, because connections and leases depend
// on it. The phase is Changing until the session is established or has failed.
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

// adopt makes what the administrator has changed while there is no session a wish
// for the next one.
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

// rejectMTU sets back an MTU that no session can have.
func (m *Mirror) rejectMTU(mtu int, now time.Time) Changes {
	return Changes{Rejected: m.reject(protocol.CfgMTU.String(), strconv.Itoa(mtu), overMaxMTU, now), MTU: m.agreed.mtu}
}

// GiveUpMAC is told that an I/O unit, for that reason, has refused a session by its
// policy. It gives up the MAC address that the administrator has set, or else the
// one that the last I/O unit granted, and reports whether there was one: then the
// same I/O unit may be tried again.
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

// Grant enters what the I/O unit grants a session that is put to use. What the
// administrator has changed since Open stays: Next asks for it.
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

// PeerMTU enters an MTU that the I/O unit's network card has now, and returns the
// netdevice's: less where the administrator wants less. For more, which he has just
// set, Next asks.
func (m *Mirror) PeerMTU(state *tap.State, mtu int) (have int, c Changes) {
	mtu = min(mtu, m.cfg.MaxMTU)
	before := m.agreed.mtu
	m.limit, m.reported.mtu = mtu, mtu
	if state.MTU != before && state.MTU < mtu {
		m.desired.mtu = state.MTU // nobody need be asked
	}
	have = m.allowedMTU()
	m.agreed.mtu, c.SessionMTU = have, mtu
	if state.MTU == before || state.MTU == have {
		c.MTU = have
	}
	return have, c
}

// PeerMAC enters a MAC address that the I/O unit has given the host. It counts more
// than what the administrator wanted before; for one that he has just set Next asks.
func (m *Mirror) PeerMAC(state *tap.State, mac protocol.MAC) (c Changes) {
	if macOf(state.MAC) == m.agreed.mac {
		c.MAC = mac
	}
	m.agreed.mac, m.desired.mac = mac, protocol.MAC{}
	return c
}

// Reset takes back what the administrator has set. The I/O unit, which has reset the
// session's settings, is asked for everything again.
func (m *Mirror) Reset(state *tap.State) Changes {
	m.desired = desired{}
	m.agreed = agreed{m.granted, m.limit}
	m.forget()
	return Changes{MAC: m.granted, MTU: m.limit, PromiscOff: state.PromiscSet, AllMultiOff: state.AllMultiSet}
}

// AskAgain has Next ask again for what was rejected of the receive filter, because the I/O
// unit's policy may be another one by now, and reports whether there is anything. VLANs
// are left out: the I/O unit adds those by itself when it may.
func (m *Mirror) AskAgain() bool {
	known := m.rejected.ofFilter()
	if m.phase != Established || len(known) == 0 {
		return false
	}
	r := &m.rejected
	r.promisc, r.allMulti, r.unicast, r.filter, r.known = false, false, nil, nil, known
	return true
}

// Rejects reports whether anything of the receive filter is rejected.
func (m *Mirror) Rejects() bool { return len(m.rejected.ofFilter()) > 0 }

// ofFilter is what of the receive filter is rejected.
func (r *rejected) ofFilter() (what []string) {
	if r.promisc {
		what = append(what, promiscuousMode)
	}
	if r.allMulti {
		what = append(what, allMulticast)
	}
	if r.unicast != nil {
		what = append(what, unicastAddresses)
	}
	if r.filter != nil {
		what = append(what, protocol.CfgFilter.String())
	}
	return what
}

// forget forgets what the I/O unit was asked for and answered.
func (m *Mirror) forget() {
	m.reported, m.applied, m.rejected = reported{mtu: m.limit}, Applied{}, rejected{}
}

// allowedMTU is the MTU for the netdevice.
func (m *Mirror) allowedMTU() int {
	if m.desired.mtu == 0 {
		return m.limit
	}
	return min(m.limit, m.desired.mtu)
}

// reject enters that something cannot be had.
func (m *Mirror) reject(what, wanted, reason string, now time.Time) *Rejection {
	m.last = &Rejection{What: what, Wanted: wanted, Reason: reason, At: now}
	return m.last
}

// supports reports whether the I/O unit can be asked for that.
func (m *Mirror) supports(t protocol.CfgType) bool {
	return !slices.Contains(m.reported.unsupported, t)
}

// macOf is the zero address for what is none.
func macOf(a net.HardwareAddr) protocol.MAC {
	if len(a) != len(protocol.MAC{}) {
		return protocol.MAC{}
	}
	return protocol.MAC(a)
}
