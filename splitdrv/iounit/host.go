package iounit

import (
	"cmp"
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/splitnic/splitnic/internal/limit"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/iounit/policy"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/tap/steer"
)

// host is who has a session, and what is settled before that is established. It is
// written by the goroutine that serves the session, before others see it.
type host struct {
	s      *session.Server
	hello  session.Hello
	log    *slog.Logger
	peer   func() session.Identity // of s
	key    string                  // hostKey
	ownKey string
	owner  string                  // the fingerprint of the key, "" if there is none
	limits limit.Key               // by which what the host asks for is limited
	cancel context.CancelCauseFunc // ends the session
	since  time.Time
	policy *policy.Host // what this host may do when the session begins

	own     protocol.MAC  // made for it; the zero address if it was given another one
	bound   bool          // the session has the feature bind
	latency *steer.Status // of its latency queue, nil if it wants none

	share string // as the policy has it; guarded by addresses.mu

	seen atomic.Pointer[samples] // of what it sends to others; nil until the session is about to be established
}

// hostKey tells hosts apart: by what they proved to be, if they did, and by
// name, because one key may serve several netdevices of a machine. Keys that are
// trusted by one name are one host's, which changes from one to the other.
func hostKey(id session.Identity, name string) string {
	if !id.Insecure && id.Name != "" {
		return id.Name + "/" + name // a fingerprint has a colon, which no name has
	}
	return ownKey(id, name)
}

// ownKey is hostKey for one key.
func ownKey(id session.Identity, name string) string {
	if id.Insecure {
		return "/" + name
	}
	return id.Fingerprint.String() + "/" + name
}

// newestKey is hostKey as of now: a key may have got a name since the session began,
// by another list of trusted keys.
func (h *host) newestKey() string { return hostKey(h.peer(), h.hello.Name) }

// by is what a policy says of a host.
func (h *host) by(p *policy.Policy) *policy.Host {
	id := h.peer()
	if id.Insecure {
		return p.For("", "") // a name that anybody can give
	}
	return p.For(id.Fingerprint.String(), id.Name)
}

// payer is whose account a session has overdrawn: its key, or its name where names
// are all there is.
func (h *host) payer() string { return cmp.Or(h.owner, h.key) }

// hasLatency reports whether the last of the host's queues is its latency queue.
func (h *host) hasLatency() bool { return h.latency != nil && h.latency.On }
