package iounit

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
)

// ErrNoHost is wrapped by errors about a host that is not connected, or not
// the only one of that name.
var ErrNoHost = errors.New("no such host is connected")

// roster are the hosts that have a session, and whether others may come.
type roster struct {
	log      *slog.Logger
	sessions sync.WaitGroup // goroutines of sessions

	mu       sync.Mutex             // guards what follows, and what Unit says that it does
	hosts    map[string]*attachment // by key
	left     chan struct{}          // closed, and replaced, when a host has left
	draining *draining              // nil: hosts may come
}

// draining is an I/O unit's that takes no hosts. roster.mu guards it.
type draining struct {
	since  time.Time
	over   chan struct{} // closed when the I/O unit takes hosts again
	moving int           // hosts that were asked and may just be on their way
}

// remove takes out the session of a host that has left.
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

// present is the session that a takes the place of, nil if there is none. The
// host of one that has begun may have got its name since, by another list of
// trusted keys. The caller holds r.mu.
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

// connected finds the session of the host that is meant.
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

// sessionsOf is how many sessions one key has. The caller holds r.mu.
func (r *roster) sessionsOf(owner string) int {
	n := 0
	for _, a := range r.hosts {
		if a.owner == owner {
			n++
		}
	}
	return n
}
