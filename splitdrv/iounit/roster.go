package iounit

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/seal"
)

// ErrNoHost is wrapped by errors about a host that is not connected, or whose name or key is
// not unique.
var ErrNoHost = errors.New("no such host is connected")

// roster has the hosts with a session, and the state of a drain.
type roster struct {
	log      *slog.Logger
	sessions sync.WaitGroup // goroutines of sessions

	mu       sync.Mutex             // guards the fields below, and some of Unit
	hosts    map[string]*attachment // by key
	left     chan struct{}          // closed and replaced when a host has left
	draining *draining              // nil: hosts are accepted
}

// draining is the state of an I/O unit that is being drained. roster.mu guards it.
type draining struct {
	since  time.Time
	over   chan struct{} // closed when the I/O unit accepts hosts again
	moving int           // number of hosts that were asked and may be moving
}

// remove removes the session of a host that has left.
func (r *roster) remove(a *attachment) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.hosts, a.key)
	close(r.left)
	r.left = make(chan struct{})
	if r.draining != nil && len(r.hosts) == 0 {
		r.log.Info("drained", "after", time.Since(r.draining.since))
	}
}

// present returns the session that a replaces, or nil if there is none. It also considers
// names that keys of existing sessions have got from a new list of trusted keys. The caller
// holds r.mu.
func (r *roster) present(a *attachment) *attachment {
	if old := r.hosts[a.key]; old != nil {
		return old
	}
	for _, old := range r.hosts {
		if old.hello.Name == a.hello.Name && old.newestKey() == a.key {
			return old
		}
	}
	return nil
}

// connected returns the session of the host with a name, or with the fingerprint of a key.
func (r *roster) connected(host string) (*attachment, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []*attachment
	var names []string
	for _, a := range r.hosts {
		if a.hello.Name == host || (a.owner != "" && a.owner == host) {
			found = append(found, a)
		}
		names = append(names, a.hello.Name)
	}
	slices.Sort(names)
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return nil, fmt.Errorf("%w: %d have the name or the key %s; say its name where the key has several, its key (see `splitnic status`) where the name has", ErrNoHost, len(found), host)
	case len(names) == 0:
		return nil, fmt.Errorf("%w: %s; nobody is", ErrNoHost, host)
	default:
		return nil, fmt.Errorf("%w: %s; there are: %s", ErrNoHost, host, strings.Join(names, ", "))
	}
}

// sessionsOf returns the number of sessions of a key. The caller holds r.mu.
func (r *roster) sessionsOf(owner string) int {
	n := 0
	for _, a := range r.hosts {
		if a.owner == owner {
			n++
		}
	}
	return n
}

// attachment is the session of a host with everything that belongs to it.
type attachment struct {
	host
	gone        chan struct{} // closed when everything is released
	established bool          // the session was established; only the goroutine that serves it uses this
	leaving     leaving       // state of a drain
	keys        *seal.Keys    // of frames and messages; nil: they are not encrypted

	mu       sync.Mutex // guards the fields below
	services *services  // nil unless the session is established
	governed *services  // like services, but already set before the first frame, for changes of the policy
	mode     protocol.Mode
}

// leaving is the state of an attachment while the I/O unit is being drained. roster.mu
// guards it, except told.
type leaving struct {
	known   bool // able is known, because the session is established
	able    bool // the session has the feature drain
	asked   bool // the host was asked to move
	why     string
	stays   chan struct{} // signaled when the host has reported why it stays; capacity one
	telling chan struct{} // has a token while a message is sent to the host; capacity one
	told    bool          // the host was told of the drain; guarded by the token
}

// show makes the session visible to Status; nil removes it.
func (a *attachment) show(s *services) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.services, a.governed = s, s
}

// begin makes changes of the policy apply to the session.
func (a *attachment) begin(s *services, mode protocol.Mode) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.governed, a.mode = s, mode
}
