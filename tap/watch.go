package tap

import (
	"context"
	"fmt"
	"time"

	"github.com/splitnic/splitnic/internal/ticker"
)

const (
	// pollInterval is how often Watch checks the attributes whose changes the kernel does not
	// announce, link-layer groups and additional unicast addresses, if a frame to a group was
	// sent meanwhile: a host that joins or leaves an IP group sends a report (RFC 3376,
	// RFC 3810).
	pollInterval = 250 * time.Millisecond
	// quietPolls is the number of these intervals between two checks if no such frame is sent.
	// It is also the number between two reads of the whole state if the process has no
	// permission to receive announcements from other namespaces.
	quietPolls = 8
)

// looks is shared by all devices of the process. It checks for hints and makes glances in one
// goroutine, and wakes up Watch only for a device that is to be read.
var looks ticker.Ticker

// Watch calls fn with the state of the device, once at first and then after each change. It
// returns nil when ctx is done, or an error. If the device was deleted, the error wraps
// ErrGone. The device may be renamed, and moved to another network namespace, meanwhile.
//
// Calls of fn do not overlap. While fn runs no change is lost, but several may be reported as
// one. A change that is undone at once may not be reported, unless State has returned it in
// between. fn is then called with the old state, so that a caller that has acted on the result
// of State acts again. If reads take long, because there are thousands of devices in the
// namespace, changes are reported later. Only one Watch may run at a time.
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
		// The state is read after subscribing: no change can be missed.
		d.pace.wait(ctx, time.Now())
		if err := d.tun.subscribe(&s); err != nil {
			return fail(err)
		}
		d.subscription.Store(s)
		var now State
		var seen digest
		begun := time.Now()
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
		d.pace.spent(begun, time.Now())
		if seen.namespace != s.at {
			continue // the device was moved in between
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

// State reads the device's state from the kernel. If the device was deleted the error wraps
// ErrGone.
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

// hinted reports whether there is a hint at a change that the kernel does not announce: a
// frame to a group was sent since the last call, or State has returned a state other than the
// one that Watch has reported.
func (d *Device) hinted() bool {
	hint := d.unreported.Load()
	for _, q := range d.queues {
		hint = q.toGroup.Swap(false) || hint
	}
	return hint
}

// remind interrupts Watch if there is a hint, or if a glance finds a difference. It waits for
// nothing but the kernel, because other devices wait for it. It interrupts again as long as
// Watch has not processed the hint. If there is none, it rests until the next glance: State and
// the queues wake it when they set a hint.
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

// glance reports whether Watch is to check the device, because it seems to differ from what
// Watch has seen. If nothing differs no goroutine is woken up. While another goroutine holds
// the device's lock, the glance is left for later.
func (d *Device) glance() (changed bool) {
	if !d.mu.TryLock() {
		return false
	}
	defer d.mu.Unlock()
	d.unglanced = false
	return d.closed || d.location.file == nil || d.location.id != d.seen.namespace || !d.location.unchanged(&d.seen)
}

// unannounced reports whether an attribute whose changes the kernel does not announce differs
// from old, or State has returned a state other than the one that Watch has reported.
func (d *Device) unannounced(old digest) (changed bool, err error) {
	err = d.do("looking for changes", func() error {
		if _, err := d.locate(); err != nil {
			return err
		}
		changed = d.unreported.Load() || d.location.id != old.namespace || !d.location.unchanged(&old)
		return nil
	})
	return changed, err
}
