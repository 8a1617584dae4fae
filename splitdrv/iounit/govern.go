package iounit

import (
	"cmp"
	"fmt"
	"log/slog"
	"reflect"
	"slices"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/iounit/policy"
)

// SetPolicy puts another policy in force, also for the sessions that there are:
// what addresses and VLANs a host may use changes at once; a session that has
// what the host may not have any more ends, so that the host can open another
// one. It returns how many end. It may be called from any goroutine, and has to
// be after session.Security.Update, which may change a host's name.
func (u *Unit) SetPolicy(p *policy.Policy) int {
	u.lines.Forget() // somebody watches what the change does
	u.mu.Lock()
	u.policy.Store(p)
	hosts := make([]*attachment, 0, len(u.hosts))
	for _, a := range u.hosts {
		u.addresses.setShare(&a.host, a.by(p).Share)
		hosts = append(hosts, a)
	}
	u.mu.Unlock()
	for _, a := range hosts {
		u.direct.govern(&a.host, p) // at once: what follows may take its time
	}
	// Where a key has too many sessions the first ones stay.
	slices.SortFunc(hosts, func(a, b *attachment) int { return cmp.Compare(a.since.UnixNano(), b.since.UnixNano()) })
	sessions, n := make(map[string]int), 0
	var staying []*host
	for _, a := range hosts {
		may := a.by(p)
		err := a.govern(may)
		if most := may.MaxSessions; err == nil && a.owner != "" && sessions[a.owner] >= most {
			err = fmt.Errorf("%w: this key may have %d sessions", errPolicy, most)
		}
		if err == nil {
			err = u.addresses.disputed(&a.host, staying)
		}
		if err == nil {
			sessions[a.owner]++
			staying = append(staying, &a.host)
			continue
		}
		n++
		a.cancel(err)
	}
	return n
}

// govern puts what the host may do in force, unless the session has to end.
func (a *attachment) govern(may *policy.Host) error {
	a.mu.Lock() // so that the connection is not closed meanwhile
	defer a.mu.Unlock()
	if a.governed != nil {
		return a.governed.govern(may, a.mode)
	}
	if !reflect.DeepEqual(may, a.policy) {
		return fmt.Errorf("%w while the session was being opened", errPolicy)
	}
	return nil
}

// govern is the attachment's for an established session.
func (s *services) govern(may *policy.Host, mode protocol.Mode) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if reflect.DeepEqual(may, s.policy) {
		return nil
	}
	if err := s.conflict(may, mode); err != nil {
		return err
	}
	s.policy = may
	s.now.vlans = s.allowed(s.wish)
	s.account.limit(may)
	s.publish()
	s.refuse.forget()
	s.conn.Unhold()
	s.lines.Log(s.host.log, slog.LevelInfo, "policy changed", "vlans", s.now.vlans, "max_tx_rate", may.MaxTxRate,
		"max_rx_rate", may.MaxRxRate,
		"max_tx_pps", may.MaxTxPPS, "max_rx_pps", may.MaxRxPPS, "max_tx_group_pps", may.MaxTxGroupPPS)
	return nil
}

// conflict says what the session has that it may not have any more, and that
// does not change while it lasts. The caller holds s.mu.
func (s *services) conflict(may *policy.Host, mode protocol.Mode) error {
	no := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{errPolicy}, args...)...)
	}
	for _, m := range append([]protocol.MAC{s.now.mac}, s.now.filter.Unicast...) {
		if !may.MayUse(m, s.host.own) {
			return no("MAC address %v is not among those that this host may have", m)
		}
	}
	queues := len(s.ports)
	if s.host.hasLatency() {
		queues--
	}
	switch {
	case !slices.Contains(may.Modes, mode):
		return no("transfer mode %s is not among those that this host may use", mode)
	case may.MaxQueues > 0 && queues > may.MaxQueues:
		return no("this host may have %d queues, and has %d", may.MaxQueues, queues)
	case may.MaxMemory > 0 && (s.policy.MaxMemory == 0 || may.MaxMemory < s.policy.MaxMemory):
		return no("this host may have %d bytes of memory for its session", may.MaxMemory)
	case s.now.filter.Promisc && !s.mayBePromiscuous(may):
		return no("this host may not be promiscuous")
	case may.RequireBind && !s.host.bound:
		return no("this host's sessions need the feature bind")
	}
	return nil
}
