package iounit

import (
	"cmp"
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/splitnic/splitnic/internal/limit"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/iounit/guard"
	"github.com/splitnic/splitnic/splitdrv/iounit/policy"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/tap/steer"
)

// host is the host of a session, with all that is decided before the session is established.
// The goroutine that serves the session writes it, before other goroutines read it.
type host struct {
	s      *session.Server
	hello  session.Hello
	log    *slog.Logger
	peer   func() session.Identity // s.Peer
	key    string                  // hostKey
	owner  string                  // fingerprint of the key, "" if there is none
	limits limit.Key               // key of the limits of the host's requests
	cancel context.CancelCauseFunc // ends the session
	since  time.Time
	policy *policy.Host // permissions at the beginning of the session

	own     protocol.MAC  // address generated for it; zero if it was assigned another one
	bound   bool          // the session has the feature bind
	latency *steer.Status // status of its latency queue; nil if it requests none

	share string // from the policy; guarded by addresses.mu

	seen atomic.Pointer[guard.Samples] // samples of its frames to other hosts; nil until directing.join
}

// hostKey returns an identifier of a host: its authenticated identity, if it has one, and
// its name, because a key may be used by several netdevices of a machine. Keys that are
// trusted under the same name belong to one host, which changes from one to the other.
func hostKey(id session.Identity, name string) string {
	if !id.Insecure && id.Name != "" {
		return id.Name + "/" + name // differs from a fingerprint, which has a colon
	}
	if id.Insecure {
		return "/" + name
	}
	return id.Fingerprint.String() + "/" + name
}

// newestKey returns the present hostKey: a new list of trusted keys may have changed the
// name of the key since the session began.
func (h *host) newestKey() string { return hostKey(h.peer(), h.hello.Name) }

func (h *host) by(p *policy.Policy) *policy.Host {
	id := h.peer()
	if id.Insecure {
		return p.For("", "") // the name is not authenticated
	}
	return p.For(id.Fingerprint.String(), id.Name)
}

// told returns what other hosts may be told about whose something is: the name under which the
// host's key is trusted, and not the name that the host has chosen.
func (h *host) told() string {
	if id := h.peer(); !id.Insecure && id.Name != "" {
		return "host " + id.Name
	}
	return "another host"
}

// shown returns the name of the host for other hosts, in their logs and status: that under which its
// key is trusted, or its key. One that the host chooses could be that of another host. Without keys
// there are only such names.
func (h *host) shown() string {
	id := h.peer()
	switch {
	case id.Insecure:
		return h.hello.Name
	case session.ValidName(id.Name):
		return id.Name
	default:
		return strings.Replace(id.Fingerprint.String(), ":", "-", 1)
	}
}

// payer returns the owner of the session's account: its key, or its name if it has no key.
func (h *host) payer() string { return cmp.Or(h.owner, h.key) }

// hasLatency reports whether the last of the host's queues is its latency queue.
func (h *host) hasLatency() bool { return h.latency != nil && h.latency.On }
