package tap

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/ticker"
)

const (
	// pollInterval is how often Watch looks at what the kernel does not
	// announce, groups joined on the link layer and further unicast addresses, if a
	// frame to a group was sent meanwhile: whoever joins or leaves a group of IP
	// reports it (RFC 3376, RFC 3810).
	pollInterval = 250 * time.Millisecond
	// quietPolls is how many of these pass between two looks without such a
	// frame; and between two looks at everything where the process may not hear of
	// changes in other namespaces.
	quietPolls = 8
)

// looks is what the devices of this process have in common: a look whether one of them is
// to be looked at wakes up nobody else.
var looks ticker.Ticker

// Watch calls fn with the state of the device, and then at each change, until
// ctx is done, when it returns nil, or something fails. When the device was
// deleted, the error wraps ErrGone. The device may be renamed, and moved to
// another network namespace, meanwhile. fn is never called concurrently; while
// it runs no changes are lost, but several may become one. What is changed and
// changed back at once may be none, unless State has returned it in between: then
// fn is called with the old state, so that whoever acts on State acts again. One
// Watch runs at a time.
func (d *Device) Watch(ctx context.Context, fn func(State)) error {
	fail := func(err error) error { return fmt.Errorf("watching %s: %w", d.name, err) }
	var s *subscription
	defer func() {
		if s != nil {
			s.close()
		}
	}()
	reminder := looks.Every(pollInterval, d.remind)
	defer reminder.Stop()
	for _, q := range d.queues {
		q.reminder.Store(reminder)
	}
	d.reminder.Store(reminder)
	due := true // fn is to be called
	for {
		// Subscribed first, read then: no change can be missed.
		if err := d.tun.subscribe(&s); err != nil {
			return fail(err)
		}
		d.subscription.Store(s)
		var now State
		var seen digest
		err := d.do("reading the state", func() (err error) {
			if seen, err = d.read(&now); err != nil || seen.namespace != s.at {
				return err
			}
			d.seen = seen
			due = due || d.unreported.Load() || !now.Equal(d.reported)
			d.reported = now
			d.unreported.Store(false)
			return nil
		})
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fail(err)
		}
		if seen.namespace != s.at {
			continue // moved in between
		}
		if due {
			due = false
			fn(now)
		}
		for changed := false; !changed; {
			if changed, err = s.wait(ctx, seen.index); err != nil {
				return fail(err)
			}
			if ctx.Err() != nil {
				return nil
			}
			pollDue := d.pollDue.Swap(false)
			changed = changed || s.blind && pollDue
			if hinted := d.hinted(); !changed && (hinted || pollDue) {
				if changed, err = d.unannounced(seen); err != nil {
					return fail(err)
				}
			}
		}
	}
}

// State reads the device's state from the kernel. When the device was deleted
// the error wraps ErrGone.
func (d *Device) State() (State, error) {
	var s State
	err := d.do("reading the state", func() error {
		_, err := d.read(&s)
		if err == nil && !s.Equal(d.reported) {
			d.unreported.Store(true)
			d.reminder.Load().Wake()
		}
		return err
	})
	if err != nil {
		return State{}, err
	}
	return s, nil
}

// hinted reports whether, since it was asked last, a frame was sent that may be about a
// change that the kernel does not announce, or State has returned something else than
// Watch has told.
func (d *Device) hinted() bool {
	hint := d.unreported.Load()
	for _, q := range d.queues {
		hint = q.toGroup.Swap(false) || hint
	}
	return hint
}

// remind has Watch look if there is a hint, or a glance finds something. It waits for nothing
// but the kernel, because other devices do. What Watch has not come to is said again. It rests
// until the next glance if there is nothing to say; who gives a hint wakes it.
func (d *Device) remind(t ticker.Tick) (rest int) {
	s := d.subscription.Load()
	if s == nil {
		return 0
	}
	d.unglanced = d.unglanced || t.N%quietPolls == 0
	if d.unglanced && (s.blind || d.glance()) {
		d.unglanced = false
		d.pollDue.Store(true)
	}
	hint := d.pollDue.Load() || d.unreported.Load()
	for _, q := range d.queues {
		hint = hint || q.toGroup.Load()
	}
	switch {
	case hint:
		s.interrupt()
		return 0
	case d.unglanced:
		return 0
	}
	return int(quietPolls - 1 - t.N%quietPolls)
}

// glance reports whether Watch is to look because something seems to be different from what it
// has seen: it wakes up nobody where nothing is. While somebody else asks the kernel about the
// device it leaves that for later.
func (d *Device) glance() (changed bool) {
	if !d.mu.TryLock() {
		return false
	}
	defer d.mu.Unlock()
	d.unglanced = false
	return d.closed || d.location.file == nil || d.location.id != d.seen.namespace || !d.location.unchanged(&d.seen)
}

// unannounced reports whether anything that the kernel does not announce is
// different from old, or State has returned something else than Watch has told.
func (d *Device) unannounced(old digest) (changed bool, err error) {
	err = d.do("looking for changes", func() error {
		name, err := d.locate()
		if err != nil {
			return err
		}
		l, err := d.location.link(name)
		if d.location.id != old.namespace || errors.Is(err, unix.ENODEV) {
			changed = true
			return nil
		}
		if err != nil {
			return err
		}
		lists, err := d.location.lists(&l, false)
		if l.master != 0 {
			lists.unicast = old.lists.unicast
		}
		changed = d.unreported.Load() || l.promisc != old.promisc || l.allmulti != old.allmulti || !lists.equal(old.lists)
		return err
	})
	return changed, err
}
