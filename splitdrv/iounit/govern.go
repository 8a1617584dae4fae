package iounit

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"reflect"
	"slices"

	"github.com/splitnic/splitnic/internal/units"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/iounit/policy"
	"github.com/splitnic/splitnic/splitdrv/messaging/cq"
	"github.com/splitnic/splitnic/splitdrv/seal"
)

// SetPolicy replaces the policy, also for existing sessions. The addresses and VLANs that a
// host may use change immediately. A session that has something that is not permitted any
// more ends, so that the host can open another one. SetPolicy returns how many sessions end.
// Any goroutine may call it; it has to be called after session.Security.Update, which can
// change a host's name.
func (u *Unit) SetPolicy(p *policy.Policy) int {
	u.lines.Forget() // log everything again, to show the effects of the change
	u.mu.Lock()
	u.policy.Store(p)
	hosts := make([]*attachment, 0, len(u.hosts))
	for _, a := range u.hosts {
		u.addresses.setShare(&a.host, a.by(p).Share)
		hosts = append(hosts, a)
	}
	u.mu.Unlock()
	for _, a := range hosts {
		u.direct.govern(&a.host, p) // first, because the rest can take a while
	}
	// If a key has too many sessions, the oldest ones stay.
	slices.SortFunc(hosts, func(x, y *attachment) int { return cmp.Compare(x.since.UnixNano(), y.since.UnixNano()) })
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

// govern applies the permissions of a host to its session, or returns the reason for which
// the session has to end.
func (a *attachment) govern(may *policy.Host) error {
	a.mu.Lock() // so that the connection is not closed in the meantime
	defer a.mu.Unlock()
	if a.governed != nil {
		return a.governed.govern(may, a.mode)
	}
	if !reflect.DeepEqual(may, a.policy) {
		return fmt.Errorf("%w while the session was being opened", errPolicy)
	}
	return nil
}

// govern is attachment.govern for an established session.
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
	if len(s.now.filter.Unicast) > may.MostMACs() {
		if err := s.setFilter(s.asked); err != nil {
			return err
		}
	}
	if len(s.reasons) > 0 {
		s.tryAgain()
	}
	s.now.vlans = s.allowed(s.wish)
	s.account.Limit(may)
	s.publish()
	s.guard.Refusals.Forget()
	s.conn.Unhold()
	s.lines.Log(s.host.log, slog.LevelInfo, "policy changed", "vlans", s.now.vlans, "max_tx_rate", may.MaxTxRate,
		"max_rx_rate", may.MaxRxRate,
		"max_tx_pps", may.MaxTxPPS, "max_rx_pps", may.MaxRxPPS, "max_tx_group_pps", may.MaxTxGroupPPS)
	return nil
}

// encryption returns whether the sessions of a host are encrypted.
func (c *common) encryption(may *policy.Host) seal.Wish { return cmp.Or(may.Encrypt, c.encrypt) }

// conflict returns an error if the session has something that is not permitted any more, and
// that cannot change during the session. The caller holds s.mu.
func (s *services) conflict(may *policy.Host, mode protocol.Mode) error {
	no := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{errPolicy}, args...)...)
	}
	for _, m := range append([]protocol.MAC{s.now.mac}, s.now.filter.Unicast...) {
		if !may.MayUse(m, s.host.own) {
			return no("MAC address %v is not among those that this host may have", m)
		}
	}
	queues := len(s.port.Queues())
	if s.host.hasLatency() {
		queues--
	}
	switch {
	case !slices.Contains(may.Modes, mode):
		return no("transfer mode %s is not among those that this host may use", mode)
	case may.MaxQueues > 0 && queues > may.MaxQueues:
		return no("this host may have %d queues, and has %d", may.MaxQueues, queues)
	case may.MaxMemory > 0 && (s.policy.MaxMemory == 0 || may.MaxMemory < s.policy.MaxMemory):
		return no("this host may have %s of memory for its session", units.Size(may.MaxMemory))
	case s.now.filter.Promisc && !s.mayBePromiscuous(may):
		return no("this host may not be promiscuous")
	case s.shared.encryption(may) == seal.Required && s.conn.Stats().Cipher == "":
		return no("this host's sessions need encryption")
	case may.RequireBind && !s.host.bound:
		return no("this host's sessions need the feature bind")
	}
	return nil
}

// ChangeHandlers changes the completion-queue handlers of a host's session, and of its later
// ones until the I/O unit ends. host is the name of the host, or the fingerprint of its key.
// If it returns an error, nothing has changed. Any goroutine may call it.
func (u *Unit) ChangeHandlers(host string, ch cq.HandlerChange) error {
	a, err := u.connected(host)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.services == nil {
		return fmt.Errorf("%w: %s has just left", ErrNoHost, host)
	}
	conn := a.services.conn
	g, err := conn.Handling().Change(ch)
	if err != nil {
		return err
	}
	// The session may just have ended, which is not an error.
	if err := conn.SetHandling(g); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	u.mu.Lock()
	u.handling[a.key] = g
	u.mu.Unlock()
	a.log.Info("completion-queue handlers changed", "handlers", g.Handlers, "assigned", g.Assigned)
	return nil
}
