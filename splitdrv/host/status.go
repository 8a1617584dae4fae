package host

import (
	"maps"
	"time"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/capture"
	"github.com/splitnic/splitnic/splitdrv/device"
	"github.com/splitnic/splitnic/splitdrv/direct"
	"github.com/splitnic/splitnic/splitdrv/host/discovery"
	"github.com/splitnic/splitnic/splitdrv/host/mirror"
	"github.com/splitnic/splitnic/splitdrv/host/uplink"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/messaging/cq"
	"github.com/splitnic/splitnic/tap/discard"
	"github.com/splitnic/splitnic/tap/steer"
)

// Status is the status of a host for `splitnic status`. Its fields are those of the JSON.
type Status struct {
	Role      string          `json:"role"` // "host"
	Name      string          `json:"name"`
	Software  string          `json:"software"`
	State     State           `json:"state"`
	Since     time.Time       `json:"since"` // begin of the state
	Netdevice NetdeviceStatus `json:"netdevice"`
	IOUnit    IOUnitStatus    `json:"iounit"`
	Device    string          `json:"device"` // RDMA device
	// DeviceState is the state of the RDMA device and what it has said; nil if nobody listens to it.
	DeviceState *device.Status `json:"device_state,omitempty"`
	// Protection is the protection of the memory lent to the I/O unit, in modes that lend
	// memory. That of the session in use is in Traffic.
	Protection messaging.ProtectionInForce `json:"protection"`
	// CompVectors is the number of the device's completion vectors. Handling has the handlers
	// of the session in use and of later ones.
	CompVectors int         `json:"comp_vectors"`
	Handling    cq.Handling `json:"handling"`
	Sessions    int         `json:"sessions"` // established since the start
	Attempts    int         `json:"attempts"` // failed attempts and ended sessions since the start
	// LastError is why there is no session; if several I/O units have failed, the last error of
	// each.
	LastError string `json:"last_error,omitempty"`
	// Permanent is true if every I/O unit has failed for a permanent reason, so that there
	// will be no session until an administrator changes something.
	Permanent bool `json:"permanent,omitempty"`
	// Ended counts sessions that ended because the I/O unit's key was no longer trusted, by
	// reason, one of Endings.
	Ended     map[string]uint64     `json:"sessions_ended_by,omitempty"`
	Traffic   *messaging.Stats      `json:"traffic,omitempty"` // of the session in use
	Failovers uplink.FailoverStatus `json:"failovers"`
	Direct    direct.Status         `json:"direct"` // direct connections to other hosts

	// Latency is the status of the latency queue; nil if none is configured.
	Latency *steer.Status `json:"latency,omitempty"`

	// Filter and VLANs are those that the I/O unit applies in the session in use.
	Filter *protocol.ReceiveFilter `json:"filter,omitempty"`
	VLANs  *protocol.VLANSet       `json:"vlans,omitempty"`
	// LastRefusal is the last setting of the netdevice that was refused since the start. It
	// is nil if a setting of the same kind was granted later.
	LastRefusal *mirror.Rejection `json:"last_refusal,omitempty"`
	Captures    []capture.Status  `json:"captures"` // running captures of its frames
}

// NetdeviceStatus describes the netdevice.
type NetdeviceStatus struct {
	Name     string `json:"name"`
	MAC      string `json:"mac"`
	MTU      int    `json:"mtu"`
	Carrier  bool   `json:"carrier"`
	Offloads string `json:"offloads"`
	Queues   int    `json:"queues"`
	// EarlyDiscard shows whether the kernel drops whole datagrams before a queue is full.
	EarlyDiscard discard.Status `json:"early_discard"`
	// Since is the time at which the netdevice was created, and Adopted the number of
	// processes that have taken it over from another one.
	Since   time.Time `json:"since"`
	Adopted int       `json:"adopted"`
}

// IOUnitStatus describes the I/O unit in use, or tried last.
type IOUnitStatus struct {
	Address     string `json:"address"`
	Name        string `json:"name,omitempty"`
	Fingerprint string `json:"fingerprint,omitempty"`
	// Platform is the identifier of the I/O unit's process, absent if it has none.
	Platform protocol.Platform `json:"platform,omitzero"`
	Insecure bool              `json:"insecure"`
	Session  string            `json:"session,omitempty"`
	Mode     protocol.Mode     `json:"mode,omitempty"` // transfer mode
	// PathMTULimit is the largest path MTU in bytes of sessions with the I/O unit, because
	// larger packets did not get through; 0: nothing limits it.
	PathMTULimit int      `json:"path_mtu_limit,omitempty"`
	SpeedMbps    uint32   `json:"speed_mbps,omitempty"`
	Configured   []string `json:"configured"` // as configured, in order of preference
	// Candidates has the known addresses of I/O units, in order of preference, and DNS the
	// state of each name among Configured.
	Candidates []string           `json:"candidates,omitempty"`
	DNS        []discovery.Status `json:"dns,omitempty"`
	// Drains is true if the I/O unit is being drained. Stays is the reason for which this
	// host has not moved, "" if it has not tried yet.
	Drains bool   `json:"drains"`
	Stays  string `json:"stays,omitempty"`
}

// Status returns a snapshot. Any goroutine may call it.
func (h *Host) Status() Status {
	units, _, _ := h.units.Units()
	h.sessions.mu.Lock()
	defer h.sessions.mu.Unlock()
	c, t, d := &h.sessions.current, &h.sessions.tally, h.dev.shown.Load()
	s := Status{
		Role: "host", Name: h.cfg.Name, Software: h.cfg.Software, State: c.state, Since: c.since,
		Netdevice: NetdeviceStatus{
			Name: h.cfg.Netdev.Name(), MAC: d.agreed.MAC.String(), MTU: d.agreed.MTU, Carrier: d.carrier,
			Offloads: d.offloads.String(), Queues: len(h.cfg.Netdev.Ports()),
			EarlyDiscard: h.cfg.Netdev.EarlyDiscard(),
			Since:        h.cfg.History.Since, Adopted: h.cfg.History.Adopted,
		},
		IOUnit: IOUnitStatus{
			Address: c.addr, Configured: h.cfg.IOUnits, Candidates: units, DNS: h.units.Status(),
			PathMTULimit: h.opener.paths.limit(c.addr, time.Now()),
		},
		Device: h.cfg.Device.Name(), DeviceState: device.StatusOf(h.cfg.Device),
		Protection:  h.protection,
		CompVectors: h.cfg.Device.Limits().CompVectors, Handling: h.sessions.handling.Handling,
		Sessions: t.sessions, Attempts: t.attempts, Ended: maps.Clone(t.ended), LastRefusal: d.rejection,
		Permanent: t.permanent, Failovers: h.sessions.failovers.Status(),
		Direct: h.direct.Status(), Latency: h.latencyStatus(d.latency),
		Captures: h.cfg.captures.Status(),
	}
	s.LastError = t.lastError(units)
	if why := h.units.Why(); s.LastError == "" && why != nil && len(units) == 0 {
		s.LastError = why.Error()
	}
	if c.conn != nil {
		var why error
		if s.Failovers.Standby, why = h.standby.Load().status(); why != nil && h.cfg.Standby {
			s.Failovers.NoStandby = why.Error()
		}
		// The connection is closed only after useNone has taken the lock.
		stats := c.conn.Stats()
		s.Traffic = &stats
		s.Filter, s.VLANs = d.applied.Filter, d.applied.VLANs
		s.Netdevice.Queues = c.welcome.Queues
		s.IOUnit.Name, s.IOUnit.Session, s.IOUnit.SpeedMbps = c.welcome.Name, c.welcome.Session, c.welcome.Link.SpeedMbps
		s.IOUnit.Mode, s.IOUnit.Drains = c.welcome.Mode, c.drain.on.Load()
		if why := c.drain.stays.Load(); why != nil {
			s.IOUnit.Stays = *why
		}
		s.IOUnit.Insecure = c.peer.Insecure
		s.IOUnit.Fingerprint, s.IOUnit.Platform = c.peer.Fingerprint.String(), c.platform
	}
	return s
}

// Changed returns a channel that is closed at the next change of the state or the netdevice.
// Call it before Status, so that no change is missed.
func (h *Host) Changed() <-chan struct{} { return h.dev.changes.next() }

// latencyStatus returns the status of the latency queue, or nil if none is configured. The
// caller holds sessions.mu.
func (h *Host) latencyStatus(s steer.Status) *steer.Status {
	switch {
	case h.cfg.NoLatency != nil:
		return &steer.Status{Reason: h.cfg.NoLatency.Error()}
	case h.cfg.Latency == nil:
		return nil
	case h.sessions.current.conn == nil:
		s = steer.Status{Classes: *h.cfg.Latency, Reason: "there is no session"}
	}
	return &s
}
