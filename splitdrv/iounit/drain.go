package iounit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/splitnic/splitnic/internal/wake"
)

const (
	// leaveAtOnce is how many hosts are asked to move at the same time. Each opens a session
	// at another I/O unit, which also moves the frames of its other hosts.
	leaveAtOnce = 8
	// leaveTime is the time after which a host that neither moves nor reports why no longer
	// delays the next one.
	leaveTime = 2 * time.Second
	// askTime is the time for a host to read a message.
	askTime = time.Second
)

// errTakesHosts is the error of WaitDrained when the I/O unit accepts hosts again.
var errTakesHosts = errors.New("the I/O unit drains no longer")

// cannotBeAsked is the reason for which a host stays whose session lacks the feature drain.
const cannotBeAsked = "its splitnic is too old to be asked; `splitnic iounit disconnect` ends its session"

// DrainStatus is the status of an I/O unit that accepts no hosts, until Undrain or the end
// of its process.
type DrainStatus struct {
	Since time.Time `json:"since"`
	// Remaining has the hosts that have not left, by name.
	Remaining []RemainingHost `json:"remaining"`
}

// RemainingHost is a host of an I/O unit that is being drained.
type RemainingHost struct {
	Name        string `json:"name"`
	Fingerprint string `json:"fingerprint"`
	Address     string `json:"address"`
	// Stays is why the host does not move to another I/O unit, "" if unknown: it is moving, or
	// was not asked yet.
	Stays string `json:"stays,omitempty"`
}

// Drain makes the I/O unit accept no hosts from now on, and asks its hosts to move to
// another I/O unit, some at a time. It does not wait for them. Any goroutine may call it,
// and repeatedly.
func (r *roster) Drain() *DrainStatus {
	r.mu.Lock()
	if r.draining == nil {
		r.draining = &draining{since: time.Now(), over: make(chan struct{})}
		r.log.Info("draining", "hosts", len(r.hosts))
		r.askNext()
	}
	r.mu.Unlock()
	return r.drainStatus()
}

// Undrain makes the I/O unit accept hosts again. Hosts that were asked to move and have not
// left may stay. Any goroutine may call it, and repeatedly.
func (r *roster) Undrain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.draining == nil {
		return
	}
	close(r.draining.over)
	r.draining = nil
	for _, a := range r.hosts {
		a.leaving.asked, a.leaving.why = false, ""
	}
	r.log.Info("draining no longer", "hosts", len(r.hosts))
}

// WaitDrained returns when all hosts have left. It returns an error when ctx is done or the
// I/O unit accepts hosts again.
func (r *roster) WaitDrained(ctx context.Context) error {
	for {
		r.mu.Lock()
		d, n, left := r.draining, len(r.hosts), r.left
		r.mu.Unlock()
		switch {
		case d == nil:
			return errTakesHosts
		case n == 0:
			return nil
		}
		select {
		case <-left:
		case <-d.over:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Disconnect ends the session of a host in good order, and waits for that until ctx is done.
// host is the name of the host, or the fingerprint of its key. The host connects to its next
// I/O unit, and may come back.
func (r *roster) Disconnect(ctx context.Context, host string) error {
	a, err := r.connected(host)
	if err != nil {
		return err
	}
	a.cancel(errDisconnected)
	select {
	case <-a.gone:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the session of %s is still being ended: %w", host, context.Cause(ctx))
	}
}

// drainStatus returns nil while the I/O unit accepts hosts.
func (r *roster) drainStatus() *DrainStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.draining == nil {
		return nil
	}
	s := &DrainStatus{Since: r.draining.since, Remaining: []RemainingHost{}}
	for _, a := range r.hosts {
		s.Remaining = append(s.Remaining, RemainingHost{
			Name: a.hello.Name, Fingerprint: a.s.Peer().Fingerprint.String(), Address: a.s.RemoteAddr().String(),
			Stays: a.leaving.why,
		})
	}
	slices.SortFunc(s.Remaining, func(x, y RemainingHost) int {
		return cmp.Or(cmp.Compare(x.Name, y.Name), cmp.Compare(x.Fingerprint, y.Fingerprint))
	})
	return s
}

// stays records why a host does not move.
func (r *roster) stays(a *attachment, why string) {
	r.mu.Lock()
	if r.draining != nil {
		a.leaving.why = why
	}
	r.mu.Unlock()
	wake.Up(a.leaving.stays)
}

// mayLeave records that a session is established, and whether the host can be asked to move.
func (r *roster) mayLeave(a *attachment, able bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a.leaving.known, a.leaving.able = true, able
	r.askNext()
}

// askNext asks the next hosts to move, up to leaveAtOnce at the same time. The caller holds
// r.mu.
func (r *roster) askNext() {
	d := r.draining
	if d == nil {
		return
	}
	for _, a := range r.hosts {
		if d.moving == leaveAtOnce {
			return
		}
		switch l := &a.leaving; {
		case !l.known || l.asked:
		case !l.able:
			l.asked, l.why = true, cannotBeAsked
		default:
			l.asked = true
			d.moving++
			r.sessions.Go(func() { r.ask(a, d) }) // permitted, because a session is in the group
		}
	}
}

// ask asks a host to move, and revokes that when the I/O unit accepts hosts again.
func (r *roster) ask(a *attachment, d *draining) {
	r.tell(a)
	timer := time.NewTimer(leaveTime)
	defer timer.Stop()
	select {
	case <-a.gone:
	case <-a.leaving.stays:
	case <-timer.C:
	case <-d.over:
	}
	r.mu.Lock()
	d.moving--
	r.askNext()
	r.mu.Unlock()
	select {
	case <-a.gone:
	case <-d.over:
		r.tell(a)
	}
}

// tell tells a host whether the I/O unit is being drained, if that has changed.
func (r *roster) tell(a *attachment) {
	l := &a.leaving
	l.telling <- struct{}{}
	defer func() { <-l.telling }()
	r.mu.Lock()
	on := r.draining != nil
	r.mu.Unlock()
	if on == l.told {
		return
	}
	l.told = on
	if err := a.s.Drain(on, askTime); err != nil {
		a.log.Debug("the host is not told", "drain", on, "error", err) // the session ends
	}
}
