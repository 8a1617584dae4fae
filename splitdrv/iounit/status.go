package iounit

import (
	"cmp"
	"slices"
	"time"

	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// Status is what `splitnic status` shows of an I/O unit.
type Status struct {
	Role      string       `json:"role"` // "iounit"
	Name      string       `json:"name"`
	Software  string       `json:"software"`
	Since     time.Time    `json:"since"`
	Device    string       `json:"device"`     // RDMA device
	Protected string       `json:"protection"` // of the memory lent to the hosts
	LAN       LANStatus    `json:"lan"`
	Hosts     []HostStatus `json:"hosts"`
	Sessions  uint64       `json:"sessions"` // established since the start
	Refused   uint64       `json:"refused"`  // connections and hosts
}

// LANStatus describes the network card.
type LANStatus struct {
	Up        bool   `json:"up"`
	MTU       int    `json:"mtu"`
	SpeedMbps int    `json:"speed_mbps,omitempty"`
	Error     string `json:"error,omitempty"`
}

// HostStatus describes one host's session.
type HostStatus struct {
	Name        string           `json:"name"`
	Address     string           `json:"address"`
	Fingerprint string           `json:"fingerprint"`
	Insecure    bool             `json:"insecure"`
	Session     string           `json:"session"`
	Since       time.Time        `json:"since"`
	MAC         string           `json:"mac"`
	MTU         int              `json:"mtu"`
	Interface   string           `json:"interface"` // LAN interface
	LANDropped  lan.Stats        `json:"lan_dropped"`
	Traffic     *messaging.Stats `json:"traffic,omitempty"`
}

// Status is a snapshot. It may be called from any goroutine.
func (u *Unit) Status() Status {
	s := Status{
		Role: "iounit", Name: u.cfg.Name, Software: u.cfg.Software, Since: u.started,
		Device: u.cfg.Device.Name(), Protected: messaging.Protection,
		Sessions: u.served.Load(), Refused: u.refused.Load(), Hosts: []HostStatus{},
	}
	if l, err := u.cfg.LinkState(); err != nil {
		s.LAN.Error = err.Error()
	} else {
		s.LAN = LANStatus{Up: l.Up, MTU: l.MTU, SpeedMbps: l.Speed}
	}
	// Without the lock, because the kernel is asked for each: nobody who comes
	// or goes has to wait for that.
	u.mu.Lock()
	macs := make(map[*attachment]protocol.MAC, len(u.hosts))
	for _, a := range u.hosts {
		macs[a] = a.mac
	}
	u.mu.Unlock()
	for a, mac := range macs {
		if h, ok := a.status(); ok {
			h.MAC = mac.String()
			s.Hosts = append(s.Hosts, h)
		}
	}
	slices.SortFunc(s.Hosts, func(a, b HostStatus) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Fingerprint, b.Fingerprint))
	})
	return s
}

// status describes the session if it is established.
func (a *attachment) status() (HostStatus, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.conn == nil {
		return HostStatus{}, false
	}
	// The connection is closed only after show has taken the lock.
	stats := a.conn.Stats()
	return HostStatus{
		Name: a.hello.Name, Address: a.s.RemoteAddr().String(),
		Fingerprint: a.s.Peer().Fingerprint.String(), Insecure: a.s.Peer().Insecure,
		Session: a.s.SessionID(), Since: a.since, MTU: a.mtu,
		Interface: a.port.Name(), LANDropped: a.port.Stats(), Traffic: &stats,
	}, true
}
