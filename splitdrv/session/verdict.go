package session

import (
	"crypto/x509"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/splitnic/splitnic/splitdrv/session/internal/identity"
)

// admit verifies a peer with a chain. TLS checks that the peer has the key of the first
// certificate.
func (s *Security) admit(a *authentication, chain []*x509.Certificate) error {
	if s.insecure {
		a.verdict.Store(&identity.Verdict{ID: Identity{Fingerprint: identity.FingerprintOf(chain[0]), Insecure: true}})
		return nil
	}
	for {
		trust, change := s.trust()
		v, reason := trust.Verify(chain, a.peerRole.usage(), s.clock())
		if reason != nil {
			return &UntrustedError{Peer: a.peerRole.String(), Addr: a.remote.String(), Fingerprint: v.ID.Fingerprint,
				Reason: reason}
		}
		if s.enlist(a, v, change) {
			return nil
		}
	}
}

// trust returns the present trust, and the number of changes until now.
func (s *Security) trust() (*identity.Trust, uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.made.Trust, s.changes
}

// enlist stores the verdict on a peer, and adds the connection to those whose peers Update
// verifies again. It reports false if there was another change of the trust since.
func (s *Security) enlist(a *authentication, v *identity.Verdict, change uint64) bool {
	s.mu.Lock()
	current := s.changes == change
	if current {
		a.verdict.Store(v)
		s.conns[a] = struct{}{}
	}
	s.mu.Unlock()
	if a.conn.Err() != nil {
		s.forget(a) // the connection may have ended before it was added
	}
	return current
}

func (s *Security) forget(a *authentication) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, a)
}

// Update replaces the content of s by that of next, which must not be used any more. New
// connections use its key, certificate and trust. The peer of each existing connection is
// verified again. If it is no longer trusted, it is told so, and the connection ends with a
// *RevokedError. Update returns the number of these connections when all their peers were
// told, which takes at most a second. The others continue with the key with which they
// began. It is an error if only one of s and next is insecure.
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

// judge verifies a peer again, and reports whether that has ended the connection.
func (s *Security) judge(a *authentication, now time.Time) bool {
	var v *identity.Verdict
	var reason error
	for renewed := true; renewed; {
		trust, change := s.trust()
		before := a.verdict.Load()
		v, reason = trust.Verify(before.Chain, a.peerRole.usage(), now)
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
	return a.conn.expel(&RevokedError{Fingerprint: v.ID.Fingerprint, Reason: reason})
}

// StillTrusted verifies the peer of a connection, which may have ended, with the present trust
// and at the present time. It returns when the peer's certificate expires, or zero if it never
// does. The error is a *RevokedError if the peer is not trusted any more.
func (a *authentication) StillTrusted() (until time.Time, err error) {
	s := a.security
	if s.insecure {
		return time.Time{}, nil
	}
	v, reason := s.current().Trust.Verify(a.verdict.Load().Chain, a.peerRole.usage(), s.clock())
	if reason != nil {
		return time.Time{}, &RevokedError{Fingerprint: v.ID.Fingerprint, Reason: reason}
	}
	return v.Expires, nil
}

// session returns the authentication of an established session that can be renewed, or nil.
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

// renew makes the certificates that were shown on a fresh connection count for a session. The
// peer must be the same: by its key, or by its name if it has changed keys.
func (s *Security) renew(session, fresh *authentication) error {
	for {
		before, shown := session.verdict.Load(), fresh.verdict.Load()
		if a, b := before.ID, shown.ID; a.Fingerprint != b.Fingerprint && (a.Name == "" || a.Name != b.Name) {
			return fmt.Errorf("%v is %v, the session is with %v: %w", fresh, b, a, ErrUnexpected)
		}
		trust, change := s.trust()
		v, reason := trust.Verify(shown.Chain, fresh.peerRole.usage(), s.clock())
		if reason != nil {
			return &UntrustedError{
				Peer: fresh.peerRole.String(), Addr: fresh.remote.String(), Fingerprint: v.ID.Fingerprint, Reason: reason,
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

// Changed returns a channel that is closed at the next Update.
func (s *Security) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// Standing describes a Security for the status.
type Standing struct {
	Insecure    bool        `json:"insecure,omitempty"`
	Fingerprint Fingerprint `json:"-"` // of this side's key
	// Begins and Expires are the term of this side's certificate; zero if no authority has
	// issued it.
	Begins      time.Time `json:"certificate_begins,omitzero"`
	Expires     time.Time `json:"certificate_expires,omitzero"`
	Keys        int       `json:"trusted_keys"` // number of listed keys
	Authorities bool      `json:"authorities"`  // certificates of authorities are trusted, too
	Revoked     int       `json:"revoked_keys"` // number of revoked keys
	// OwnRevoked is true if this side's own key is revoked.
	OwnRevoked bool `json:"own_key_revoked,omitempty"`
}

// Knows calls Trust.Knows of the present trust. It reports false in insecure mode.
func (s *Security) Knows(who string) bool {
	made := s.current()
	return made.Trust != nil && made.Trust.Knows(who)
}

// Standing returns a snapshot.
func (s *Security) Standing() Standing {
	made := s.current()
	st := Standing{Insecure: s.insecure, Fingerprint: made.Fingerprint}
	if made.Issued {
		st.Begins, st.Expires = made.Leaf.NotBefore, made.Leaf.NotAfter
	}
	if t := made.Trust; t != nil {
		st.Keys, st.Revoked = t.Sizes()
		st.Authorities, st.OwnRevoked = t.Authorities(), t.Revoked(made.Fingerprint)
	}
	return st
}
