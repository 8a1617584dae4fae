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
func (u *Unit) Drain() *DrainStatus {
	u.mu.Lock()
	if u.draining == nil {
		u.draining = &draining{since: time.Now(), over: make(chan struct{})}
		u.cfg.Log.Info("draining", "hosts", len(u.hosts))
		u.askNext()
	}
	u.mu.Unlock()
	return u.drainStatus()
}

// Undrain has the I/O unit take hosts again. Those that have been asked to go and are
// still there may stay. It may be called from any goroutine, and again.
func (u *Unit) Undrain() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.draining == nil {
		return
	}
	close(u.draining.over)
	u.draining = nil
	for _, a := range u.hosts {
		a.leaving.asked, a.leaving.why = false, ""
	}
	u.cfg.Log.Info("draining no longer", "hosts", len(u.hosts))
}

// WaitDrained returns when no host is left, or with an error when ctx is done or the I/O
// unit takes hosts again.
func (u *Unit) WaitDrained(ctx context.Context) error {
	for {
		u.mu.Lock()
		d, n, left := u.draining, len(u.hosts), u.left
		u.mu.Unlock()
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
func (u *Unit) Disconnect(ctx context.Context, host string) error {
	a, err := u.connected(host)
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
func (u *Unit) drainStatus() *DrainStatus {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.draining == nil {
		return nil
	}
	s := &DrainStatus{Since: u.draining.since, Remaining: []RemainingHost{}}
	for _, a := range u.hosts {
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
func (u *Unit) stays(a *attachment, why string) {
	u.mu.Lock()
	if u.draining != nil {
		a.leaving.why = why
	}
	u.mu.Unlock()
	select {
	case a.leaving.stays <- struct{}{}:
	default:
	}
}

// mayLeave is told that a session is established, and whether the host can be asked to go.
func (u *Unit) mayLeave(a *attachment, able bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	a.leaving.known, a.leaving.able = true, able
	u.askNext()
}

// askNext asks as many hosts to go as may be on their way at once. The caller holds u.mu.
func (u *Unit) askNext() {
	d := u.draining
	if d == nil {
		return
	}
	for _, a := range u.hosts {
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
			u.sessions.Go(func() { u.ask(a, d) }) // that of the host is one of them
		}
	}
}

// ask asks a host to go, and says that it need not when the I/O unit takes hosts again.
func (u *Unit) ask(a *attachment, d *draining) {
	u.tell(a)
	timer := time.NewTimer(leaveTime)
	defer timer.Stop()
	select {
	case <-a.gone:
	case <-a.leaving.stays:
	case <-timer.C:
	case <-d.over:
	}
	u.mu.Lock()
	d.moving--
	u.askNext()
	u.mu.Unlock()
	select {
	case <-a.gone:
	case <-d.over:
		u.tell(a)
	}
}

// tell tells a host whether the I/O unit drains, if that is news.
func (u *Unit) tell(a *attachment) {
	l := &a.leaving
	l.telling <- struct{}{}
	defer func() { <-l.telling }()
	u.mu.Lock()
	on := u.draining != nil
	u.mu.Unlock()
	if on == l.told {
		return
	}
	l.told = on
	if err := a.s.Drain(on, askTime); err != nil {
		a.log.Debug("the host is not told", "drain", on, "error", err) // its session ends
	}
}
