package session

import (
	"crypto/x509"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// admit judges the peer of c, which presented chain and has the key of its
// first certificate.
func (s *Security) admit(c *Conn, chain []*x509.Certificate) error {
	if s.insecure {
		c.verdict.Store(&verdict{id: Identity{Fingerprint: certificateFingerprint(chain[0]), Insecure: true}})
		return nil
	}
	for {
		s.mu.Lock()
		trust, change := s.made.trust, s.changes
		s.mu.Unlock()
		v, reason := trust.verify(chain, c.peerRole.usage(), s.clock())
		if reason != nil {
			return &UntrustedError{Peer: c.peerRole.String(), Addr: c.RemoteAddr().String(), Fingerprint: v.id.Fingerprint,
				Reason: reason}
		}
		if s.enlist(c, v, change) {
			return nil
		}
	}
}

// enlist makes the verdict on c's peer its verdict, and c one of those that
// Update judges again, unless there was a change since.
func (s *Security) enlist(c *Conn, v *verdict, change uint64) bool {
	s.mu.Lock()
	current := s.changes == change
	if current {
		c.verdict.Store(v)
		s.conns[c] = struct{}{}
	}
	s.mu.Unlock()
	if c.Err() != nil {
		s.forget(c) // it may have ended before
	}
	return current
}

// forget is told of every connection that has ended.
func (s *Security) forget(c *Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
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
	conns := make([]*Conn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	s.mu.Unlock()
	var n atomic.Int64
	var judging sync.WaitGroup
	for _, c := range conns {
		judging.Go(func() {
			if s.judge(c, s.clock()) {
				n.Add(1)
			}
		})
	}
	judging.Wait()
	return int(n.Load()), nil
}

// judge judges the peer of c again, and reports whether that ended the
// connection.
func (s *Security) judge(c *Conn, now time.Time) bool {
	var v *verdict
	var reason error
	for renewed := true; renewed; {
		s.mu.Lock()
		trust, change := s.made.trust, s.changes
		s.mu.Unlock()
		before := c.verdict.Load()
		v, reason = trust.verify(before.chain, c.peerRole.usage(), now)
		s.mu.Lock()
		renewed = c.verdict.Load() != before
		if !renewed && reason == nil && s.changes == change { // otherwise there is a later verdict
			c.verdict.Store(v)
		}
		s.mu.Unlock()
	}
	if reason == nil {
		return false
	}
	return c.expel(&RevokedError{Peer: c.peerRole.String(), Addr: c.RemoteAddr().String(), Fingerprint: v.id.Fingerprint,
		Reason: reason})
}

// expire ends the connection when the peer's certificate has come to its end.
// It goes by the clock on the wall, which may have been set since.
func (c *Conn) expire(now time.Time) {
	if c.expires(now) {
		c.security.judge(c, now)
	}
}

// expires reports whether the peer's certificate has come to its end.
func (c *Conn) expires(now time.Time) bool {
	v := c.verdict.Load()
	return v != nil && !v.expires.IsZero() && now.After(v.expires)
}

// expel ends the connection, with a last message unless the TLS handshake is still
// going on, and reports whether it had not ended before.
func (c *Conn) expel(err *RevokedError) bool {
	c.closing.Lock()
	first := c.finish(fmt.Errorf("%v: %w", c, err))
	// In the middle of the TLS handshake there is no way to tell it: that would
	// wait until the peer has done its part, which it need not do.
	if first && c.authenticated.Load() {
		_ = c.farewell(byeMessage{typeBye, CodeRevoked, text("this key is trusted no longer: " + err.Reason.Error())})
	}
	c.closing.Unlock()
	if first {
		c.shut()
	}
	return first
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
