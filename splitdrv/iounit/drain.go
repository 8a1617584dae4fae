package iounit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

const (
	// leaveAtOnce is how many hosts are on their way to another I/O unit at once: each
	// opens a session there, beside those whose frames that I/O unit moves.
	leaveAtOnce = 8
	// leaveTime is after how long a host that has been asked, and neither goes nor says
	// why, does not hold up the next one.
	leaveTime = 2 * time.Second
	// askTime is how long a host may take to read what it is told.
	askTime = time.Second
)

// errTakesHosts is why there is nothing to wait for.
var errTakesHosts = errors.New("the I/O unit drains no longer")

// cannotBeAsked is why a host stays whose sessions do not have the feature drain.
const cannotBeAsked = "its splitnic is too old to be asked; `splitnic iounit disconnect` ends its session"

// DrainStatus is about an I/O unit that takes no hosts, until it is told to again or
// its process ends.
type DrainStatus struct {
	Since time.Time `json:"since"`
	// Remaining are the hosts that are still there, by name.
	Remaining []RemainingHost `json:"remaining"`
}

// RemainingHost is a host of an I/O unit that drains.
type RemainingHost struct {
	Name        string `json:"name"`
	Fingerprint string `json:"fingerprint"`
	Address     string `json:"address"`
	// Stays is why it does not go to another I/O unit, "" while that is not known: it
	// is on its way, or has not been asked yet.
	Stays string `json:"stays,omitempty"`
}

// Drain has the I/O unit take no hosts from now on, and asks those that there are to go
// to another one, some at a time. It returns at once with those that are there. It may be
// called from any goroutine, and again.
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

// Undrain has the I/O unit take hosts again. Those that have been asked to go and are
// still there may stay. It may be called from any goroutine, and again.
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

// WaitDrained returns when no host is left, or with an error when ctx is done or the I/O
// unit takes hosts again.
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

// Disconnect ends a host's session in good order, and returns when that is done, or with
// an error when ctx is. host is its name, or the fingerprint of its key. The host goes to
// its next I/O unit, and may come back.
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

// drainStatus is nil while the I/O unit takes hosts.
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
	slices.SortFunc(s.Remaining, func(a, b RemainingHost) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Fingerprint, b.Fingerprint))
	})
	return s
}

// stays is told why a host does not go.
func (r *roster) stays(a *attachment, why string) {
	r.mu.Lock()
	if r.draining != nil {
		a.leaving.why = why
	}
	r.mu.Unlock()
	select {
	case a.leaving.stays <- struct{}{}:
	default:
	}
}

// mayLeave is told that a session is established, and whether the host can be asked to go.
func (r *roster) mayLeave(a *attachment, able bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a.leaving.known, a.leaving.able = true, able
	r.askNext()
}

// askNext asks as many hosts to go as may be on their way at once. The caller holds r.mu.
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
			r.sessions.Go(func() { r.ask(a, d) }) // that of the host is one of them
		}
	}
}

// ask asks a host to go, and says that it need not when the I/O unit takes hosts again.
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

// tell tells a host whether the I/O unit drains, if that is news.
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
		a.log.Debug("the host is not told", "drain", on, "error", err) // its session ends
	}
}
