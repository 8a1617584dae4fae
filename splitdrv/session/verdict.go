package session

import (
	"crypto/x509"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// admit judges a peer, which presented chain and has the key of its first
// certificate.
func (s *Security) admit(a *authentication, chain []*x509.Certificate) error {
	if s.insecure {
		a.verdict.Store(&verdict{id: Identity{Fingerprint: certificateFingerprint(chain[0]), Insecure: true}})
		return nil
	}
	for {
		s.mu.Lock()
		trust, change := s.made.trust, s.changes
		s.mu.Unlock()
		v, reason := trust.verify(chain, a.peerRole.usage(), s.clock())
		if reason != nil {
			return &UntrustedError{Peer: a.peerRole.String(), Addr: a.remote.String(), Fingerprint: v.id.Fingerprint,
				Reason: reason}
		}
		if s.enlist(a, v, change) {
			return nil
		}
	}
}

// enlist stores the verdict on a peer, and makes the connection one of those whose
// peers Update judges again, unless there was a change since.
func (s *Security) enlist(a *authentication, v *verdict, change uint64) bool {
	s.mu.Lock()
	current := s.changes == change
	if current {
		a.verdict.Store(v)
		s.conns[a] = struct{}{}
	}
	s.mu.Unlock()
	if a.conn.Err() != nil {
		s.forget(a) // it may have ended before
	}
	return current
}

// forget is told of every connection that has ended.
func (s *Security) forget(a *authentication) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, a)
}

// Update makes s what next is, which is given up. Connections that begin from
// now on use its key and certificate and go by its trust. Of those that there
// are, each peer is judged again: one that is trusted no longer is told so, the
// connection ends with a *RevokedError, and Update returns how many there were
// when all have been told, which takes a second at most. The others go on with
// the key that they began with. It is an error if one of s and next is insecure.
func (s *Security) Update(next *Security) (ended int, err error) {
	if s.insecure != next.insecure {
		return 0, fmt.Errorf("%w; that cannot change while this runs", ErrSecurityMode)
	}
	made := next.current()
	s.mu.Lock()
	s.made = made
	s.changes++
	close(s.changed)
	s.changed = make(chan struct{})
	conns := make([]*authentication, 0, len(s.conns))
	for a := range s.conns {
		conns = append(conns, a)
	}
	s.mu.Unlock()
	var n atomic.Int64
	var judging sync.WaitGroup
	for _, a := range conns {
		judging.Go(func() {
			if s.judge(a, s.clock()) {
				n.Add(1)
			}
		})
	}
	judging.Wait()
	return int(n.Load()), nil
}

// judge judges a peer again, and reports whether that ended the
// connection.
func (s *Security) judge(a *authentication, now time.Time) bool {
	var v *verdict
	var reason error
	for renewed := true; renewed; {
		s.mu.Lock()
		trust, change := s.made.trust, s.changes
		s.mu.Unlock()
		before := a.verdict.Load()
		v, reason = trust.verify(before.chain, a.peerRole.usage(), now)
		s.mu.Lock()
		renewed = a.verdict.Load() != before
		if !renewed && reason == nil && s.changes == change { // otherwise there is a later verdict
			a.verdict.Store(v)
		}
		s.mu.Unlock()
	}
	if reason == nil {
		return false
	}
	return a.conn.expel(&RevokedError{Peer: a.peerRole.String(), Addr: a.remote.String(), Fingerprint: v.id.Fingerprint,
		Reason: reason})
}

// session is the authentication of an established session that can be renewed, nil if
// there is none.
func (s *Security) session(id string) *authentication {
	s.mu.Lock()
	defer s.mu.Unlock()
	for a := range s.conns {
		if known := a.session.Load(); known != nil && *known == id {
			return a
		}
	}
	return nil
}

// renew has what was shown on a fresh connection count for a session's. The peer must
// be the same: by its key, or by its name when it has changed keys.
func (s *Security) renew(session, fresh *authentication) error {
	for {
		before, shown := session.verdict.Load(), fresh.verdict.Load()
		if a, b := before.id, shown.id; a.Fingerprint != b.Fingerprint && (a.Name == "" || a.Name != b.Name) {
			return fmt.Errorf("%v is %v, the session is with %v: %w", fresh, b, a, ErrUnexpected)
		}
		s.mu.Lock()
		trust, change := s.made.trust, s.changes
		s.mu.Unlock()
		v, reason := trust.verify(shown.chain, fresh.peerRole.usage(), s.clock())
		if reason != nil {
			return &UntrustedError{
				Peer: fresh.peerRole.String(), Addr: fresh.remote.String(), Fingerprint: v.id.Fingerprint, Reason: reason,
			}
		}
		s.mu.Lock()
		done := s.changes == change && session.verdict.CompareAndSwap(before, v)
		if done {
			session.showed.Store(fresh.showed.Load())
		}
		s.mu.Unlock()
		if done {
			return nil
		}
	}
}

// Changed is closed at the next Update.
func (s *Security) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// Standing describes a Security for people. Counts are of entries.
type Standing struct {
	Insecure    bool        `json:"insecure,omitempty"`
	Fingerprint Fingerprint `json:"-"` // of this side's key
	// Begins and Expires are from and until when this side's certificate is
	// valid; zero if no authority has issued it.
	Begins      time.Time `json:"certificate_begins,omitzero"`
	Expires     time.Time `json:"certificate_expires,omitzero"`
	Keys        int       `json:"trusted_keys"`
	Authorities bool      `json:"authorities"` // peers are trusted by their certificates too
	Revoked     int       `json:"revoked_keys"`
	// OwnRevoked is true if this side's own key is among the revoked ones.
	OwnRevoked bool `json:"own_key_revoked,omitempty"`
}

// Knows is Trust.Knows of those that are trusted now: nobody with Insecure.
func (s *Security) Knows(who string) bool {
	made := s.current()
	return made.trust != nil && made.trust.Knows(who)
}

// Standing is a snapshot.
func (s *Security) Standing() Standing {
	made := s.current()
	st := Standing{Insecure: s.insecure, Fingerprint: made.fingerprint}
	if made.issued {
		st.Begins, st.Expires = made.leaf.NotBefore, made.leaf.NotAfter
	}
	if t := made.trust; t != nil {
		st.Keys, st.Authorities, st.Revoked = len(t.pins), t.ca != nil, len(t.revoked)
		_, st.OwnRevoked = t.revoked[made.fingerprint]
	}
	return st
}
