package iounit

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/splitnic/splitnic/internal/counter"
	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/capture"
	"github.com/splitnic/splitnic/splitdrv/device"
	"github.com/splitnic/splitnic/splitdrv/iounit/guard"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/tap/discard"
	"github.com/splitnic/splitnic/tap/steer"
)

// Status is the status of an I/O unit for `splitnic status`. Its fields are those of the JSON.
type Status struct {
	Role     string    `json:"role"` // "iounit"
	Name     string    `json:"name"`
	Software string    `json:"software"`
	Since    time.Time `json:"since"`
	Device   string    `json:"device"` // RDMA device
	// DeviceState is the state of the RDMA device and what it has said; nil if nobody listens to it.
	DeviceState *device.Status `json:"device_state,omitempty"`
	// Protection is the protection of the memory lent to hosts, in modes that lend memory.
	// That of each session is in its Traffic.
	Protection messaging.ProtectionInForce `json:"protection"`
	// Modes are the transfer modes that are offered, and Without says why others are not,
	// although they may.
	Modes   []protocol.Mode `json:"modes"`
	Without string          `json:"modes_without,omitempty"`
	// CompVectors is the number of the device's completion vectors.
	CompVectors int          `json:"comp_vectors"`
	LAN         LANStatus    `json:"lan"`
	Hosts       []HostStatus `json:"hosts"`
	Sessions    uint64       `json:"sessions"` // established since the start
	Refused     uint64       `json:"refused"`  // connections and hosts without a session
	// Refusals counts the same by reason, one of package iounit's Refusals.
	Refusals map[string]uint64 `json:"refused_by"`
	// Elsewhere counts hosts that connected to several I/O units at once and chose another
	// one. Refused does not include them.
	Elsewhere uint64 `json:"elsewhere"`
	// Violations counts sessions that ended because a host broke the protocol, by rule, one
	// of Rules.
	Violations map[string]uint64 `json:"protocol_violations"`
	Memory     MemoryStatus      `json:"memory"`
	// Ended counts the ends of established sessions, by reason, one of Endings.
	Ended map[string]uint64 `json:"ended_by"`
	// Unrevoked counts frames of hosts that had arrived and were not delivered, because the
	// session ended before their one-touch windows were invalidated.
	Unrevoked uint64 `json:"frames_unrevoked"`
	// Direct is the status of direct connections between hosts; nil without any.
	Direct *DirectStatus `json:"direct,omitempty"`
	// Drain is the status of a drain; nil while hosts are accepted.
	Drain *DrainStatus `json:"drain,omitempty"`
	// Bootstrap has the statistics of incoming connections.
	Bootstrap session.ListenerStats `json:"bootstrap"`
	Captures  []capture.Status      `json:"captures"` // running captures of frames
}

// MemoryStatus is the memory registered for all sessions, in bytes.
type MemoryStatus struct {
	Used  int64 `json:"used"`
	Limit int64 `json:"limit,omitempty"` // 0: no limit
}

// LANStatus describes the network card.
type LANStatus struct {
	Up        bool   `json:"up"`
	MTU       int    `json:"mtu"`
	SpeedMbps int    `json:"speed_mbps,omitempty"`
	Error     string `json:"error,omitempty"`
}

// HostStatus describes the session of one host. Its fields are those of the JSON, which is
// flat so that queries are simple.
type HostStatus struct {
	Name        string `json:"name"` // that the host has chosen
	Address     string `json:"address"`
	Fingerprint string `json:"fingerprint"`
	// TrustedAs is the name under which the host's key is trusted, absent if it has none.
	TrustedAs string `json:"trusted_as,omitempty"`
	// Platform is the identifier of the host's process, absent if it has none.
	Platform   protocol.Platform `json:"platform,omitzero"`
	Insecure   bool              `json:"insecure"`
	Session    string            `json:"session"`
	Since      time.Time         `json:"since"`
	Mode       protocol.Mode     `json:"mode"`
	MAC        string            `json:"mac"`
	MTU        int               `json:"mtu"`
	Interface  string            `json:"interface"` // LAN interface
	Up         bool              `json:"up"`        // administrative state, set by the host
	Memory     int64             `json:"memory"`    // bytes registered for this host
	LANDropped lan.Stats         `json:"lan_dropped"`
	// EarlyDiscard shows whether the kernel drops whole datagrams before a queue of the
	// interface is full.
	EarlyDiscard discard.Status   `json:"early_discard"`
	Traffic      *messaging.Stats `json:"traffic,omitempty"`
	// Latency is the status of the host's latency queue; nil if it requests none.
	Latency *steer.Status `json:"latency,omitempty"`

	Filter protocol.ReceiveFilter `json:"filter"` // receive filter of the host
	VLANs  protocol.VLANSet       `json:"vlans"`  // VLANs that the host receives
	// Statistics counts frames since the beginning of the session, by result; rx is from the
	// LAN to the host.
	Statistics protocol.Statistics `json:"statistics"`
	// Dropped counts further dropped frames. DropReasons describes the first dropped frame to
	// the LAN for each reason, since the last change of the policy.
	Dropped     guard.Dropped `json:"dropped_by_policy"`
	DropReasons []string      `json:"drop_reasons,omitempty"`
	// MaxTxRate and MaxRxRate are the limits of the policy in bits per second, to and from
	// the LAN, MaxTxPPS and MaxRxPPS those in packets per second; 0: no limit. MaxTxGroupPPS
	// limits packets per second to groups of the LAN; more are dropped.
	MaxTxRate     int64 `json:"max_tx_rate"`
	MaxRxRate     int64 `json:"max_rx_rate"`
	MaxTxPPS      int64 `json:"max_tx_pps"`
	MaxRxPPS      int64 `json:"max_rx_pps"`
	MaxTxGroupPPS int64 `json:"max_tx_group_pps"`
	// NoDirect is the reason for which the host has no direct connections, "" if it may have
	// some.
	NoDirect string `json:"no_direct,omitempty"`
	PortCounters
}

// Counts returns the values of HostCounters.
func (h *HostStatus) Counts() []uint64 {
	return counter.Values(counter.Values(counter.Values(nil, &h.Statistics), &h.Dropped), &h.PortCounters)
}

// Status returns a snapshot. Any goroutine may call it.
func (u *Unit) Status() Status {
	s := Status{
		Role: "iounit", Name: u.cfg.Name, Software: u.cfg.Software, Since: u.started,
		Device: u.cfg.Device.Name(), DeviceState: device.StatusOf(u.cfg.Device), Protection: u.protecting,
		Modes: u.cfg.Modes, Without: u.without,
		CompVectors: u.cfg.Device.Limits().CompVectors,
		Sessions:    u.served.Load(), Unrevoked: u.unrevoked.Load(), Elsewhere: u.elsewhere.Load(), Hosts: []HostStatus{},
		Direct: u.direct.status(), Drain: u.drainStatus(), Captures: u.captures.Status(),
	}
	if ln := u.listener.Load(); ln != nil {
		s.Bootstrap = ln.Stats()
	}
	if b := u.cfg.Messaging.Budget; b != nil {
		s.Memory.Limit = b.Limit()
	}
	if l, err := u.cfg.LinkState(); err != nil {
		s.LAN.Error = err.Error()
	} else {
		s.LAN = LANStatus{Up: l.Up, MTU: l.MTU, SpeedMbps: l.Speed}
	}
	// Without the lock, because the status of each host asks the kernel: hosts that come
	// or leave must not wait for that.
	u.mu.Lock()
	hosts := slices.Collect(maps.Values(u.hosts))
	u.mu.Unlock()
	s.Violations, s.Refusals, s.Ended = u.clone()
	for _, n := range s.Refusals {
		s.Refused += n
	}
	for _, a := range hosts {
		if h, ok := u.status(a); ok {
			s.Hosts = append(s.Hosts, h)
			s.Memory.Used += h.Memory
		}
	}
	slices.SortFunc(s.Hosts, func(x, y HostStatus) int {
		return cmp.Or(cmp.Compare(x.Name, y.Name), cmp.Compare(x.Fingerprint, y.Fingerprint))
	})
	return s
}

// status returns the status of a session. It is not ok if the session is not established.
func (u *Unit) status(a *attachment) (HostStatus, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.services == nil {
		return HostStatus{}, false
	}
	// The connection is closed only after show has taken the lock.
	s := a.services
	stats := s.conn.Stats()
	now, mtu := s.current()
	may := s.may()
	counted, dropped := s.statistics()
	var txLimited, rxLimited uint64
	for i := range stats.Channels { // from the host's point of view
		txLimited += stats.Channels[i].RxThrottled
		rxLimited += stats.Channels[i].TxThrottled
	}
	id := a.s.Peer()
	return HostStatus{
		Name: a.hello.Name, Address: a.s.RemoteAddr().String(),
		Fingerprint: id.Fingerprint.String(), TrustedAs: id.Name, Insecure: id.Insecure, Platform: a.s.PeerPlatform(),
		Session: a.s.SessionID(), Since: a.since, Mode: a.mode, MAC: now.mac.String(), MTU: mtu,
		Interface: s.port.Name(), Up: now.up, Memory: int64(stats.MemoryPinned),
		LANDropped: s.port.Stats(), EarlyDiscard: s.port.EarlyDiscard(),
		Traffic: &stats, Latency: a.latency,
		Filter: now.filter, VLANs: now.vlans, Statistics: counted,
		Dropped: dropped, DropReasons: s.guard.Refusals.List(),
		MaxTxRate: may.MaxTxRate, MaxRxRate: may.MaxRxRate, MaxTxPPS: may.MaxTxPPS, MaxRxPPS: may.MaxRxPPS,
		MaxTxGroupPPS: may.MaxTxGroupPPS, NoDirect: u.direct.whyNot(&a.host),
		PortCounters: PortCounters{
			Announced: s.tells.frames.Load(), TxLimited: txLimited, RxLimited: rxLimited,
			TxOversize: s.guard.Oversize(), HeartbeatsThrottled: a.s.HeartbeatsThrottled(),
		},
	}, true
}
