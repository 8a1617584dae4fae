package iounit

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"time"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/iounit/policy"
)

// errPolicy is wrapped by the reason why a session ends that is not as the
// policy has it any more.
var errPolicy = errors.New("the policy has changed")

// SetPolicy puts another policy in force, also for the sessions that there are:
// what addresses and VLANs a host may use changes at once; a session that has
// what the host may not have any more ends, so that the host can open another
// one. It returns how many end. It may be called from any goroutine, and has to
// be after session.Security.Update, which may change a host's name.
func (u *Unit) SetPolicy(p *policy.Policy) int {
	u.lines.Forget() // somebody watches what the change does
	u.mu.Lock()
	u.policy = p
	hosts := make([]*attachment, 0, len(u.hosts))
	for _, a := range u.hosts {
		a.share = u.policyOf(p, a).Share
		hosts = append(hosts, a)
	}
	u.mu.Unlock()
	for _, a := range hosts {
		u.direct.govern(a, p) // at once: what follows may take its time
	}
	// Where a key has too many sessions the first ones stay.
	slices.SortFunc(hosts, func(a, b *attachment) int { return cmp.Compare(a.since.UnixNano(), b.since.UnixNano()) })
	sessions, n := make(map[string]int), 0
	var staying []*attachment
	for _, a := range hosts {
		may := u.policyOf(p, a)
		err := a.govern(may)
		if most := may.MaxSessions; err == nil && a.owner != "" && sessions[a.owner] >= most {
			err = fmt.Errorf("%w: this key may have %d sessions", errPolicy, most)
		}
		if err == nil {
			err = u.disputed(a, staying)
		}
		if err == nil {
			sessions[a.owner]++
			staying = append(staying, a)
			continue
		}
		n++
		a.cancel(err)
	}
	return n
}

// disputed says which address a session has that one of those that stay has as
// well, although their hosts do not share addresses any more.
func (u *Unit) disputed(a *attachment, staying []*attachment) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, other := range staying {
		for _, m := range append([]protocol.MAC{a.mac}, a.further...) {
			if m.Valid() && other.has(m) && !a.shares(other) {
				return fmt.Errorf("%w: MAC address %v is that of host %s, and not shared (`share`)", errPolicy, m, other.hello.Name)
			}
		}
	}
	return nil
}

// policyOf is what a policy says of a host.
func (u *Unit) policyOf(p *policy.Policy, a *attachment) *policy.Host {
	id := a.peer()
	if id.Insecure {
		return p.For("", "") // a name that anybody can give
	}
	return p.For(id.Fingerprint.String(), id.Name)
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
	if reflect.DeepEqual(may, s.host) {
		return nil
	}
	if err := s.conflict(may, mode); err != nil {
		return err
	}
	s.host = may
	s.now.vlans = s.allowed(s.wish)
	s.limit()
	s.publish()
	s.refuse.forget()
	s.conn.Unhold()
	s.lines.Log(s.a.log, slog.LevelInfo, "policy changed", "vlans", s.now.vlans, "max_tx_rate", may.MaxTxRate,
		"max_rx_rate", may.MaxRxRate,
		"max_tx_pps", may.MaxTxPPS, "max_rx_pps", may.MaxRxPPS, "max_tx_group_pps", may.MaxTxGroupPPS)
	return nil
}

// limit makes the rates those that the host may have. What it has left of a rate
// that changes, or owes, it keeps. The caller holds s.mu, and publishes them.
func (s *services) limit() {
	now := func() time.Duration { return time.Since(started) }
	change := func(b **bucket, to bounds) {
		switch {
		case to == bounds{}:
			*b = nil
		case *b == nil:
			*b = newBucket(to, now)
		default:
			(*b).set(to)
		}
	}
	change(&s.tx, bounds{s.host.MaxTxRate, s.host.MaxTxPPS})
	change(&s.rx, bounds{s.host.MaxRxRate, s.host.MaxRxPPS})
	isNew := s.toGroups == nil
	change(&s.toGroups, bounds{packets: s.host.MaxTxGroupPPS})
	if isNew && s.toGroups != nil {
		s.toGroups.save()
	}
}

// conflict says what the session has that it may not have any more, and that
// does not change while it lasts. The caller holds s.mu.
func (s *services) conflict(may *policy.Host, mode protocol.Mode) error {
	no := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{errPolicy}, args...)...)
	}
	for _, m := range append([]protocol.MAC{s.now.mac}, s.now.filter.Unicast...) {
		if !may.MayUse(m, s.a.own) {
			return no("MAC address %v is not among those that this host may have", m)
		}
	}
	queues := len(s.ports)
	if s.a.hasLatency() {
		queues--
	}
	switch {
	case !slices.Contains(may.Modes, mode):
		return no("transfer mode %s is not among those that this host may use", mode)
	case may.MaxQueues > 0 && queues > may.MaxQueues:
		return no("this host may have %d queues, and has %d", may.MaxQueues, queues)
	case may.MaxMemory > 0 && (s.host.MaxMemory == 0 || may.MaxMemory < s.host.MaxMemory):
		return no("this host may have %d bytes of memory for its session", may.MaxMemory)
	case s.now.filter.Promisc && !s.mayBePromiscuous(may):
		return no("this host may not be promiscuous")
	case may.RequireBind && !s.a.bound:
		return no("this host's sessions need the feature bind")
	}
	return nil
}

// allowed is what a host gets that wants those VLANs. The caller holds s.mu.
func (s *services) allowed(want protocol.VLANSet) protocol.VLANSet {
	var got protocol.VLANSet
	for v := range want.All() {
		if s.host.VLANs.Has(v) {
			got.Add(v)
		}
	}
	return got
}
