package vhostuser

import (
	"errors"
	"fmt"
)

// vring is the ring that a message is about.
func (f *frontEnd) vring(m *message) (v *vring, value uint32, err error) {
	index, value := m.vring()
	v, err = f.ring(index)
	return v, value, err
}

func (f *frontEnd) ring(index uint32) (*vring, error) {
	if index >= uint32(len(f.d.rings)) {
		return nil, fmt.Errorf("%w: ring %d; there are %d", ErrFrontEnd, index, len(f.d.rings))
	}
	return f.d.rings[index], nil
}

// setVring carries out a message about a ring.
func (f *frontEnd) setVring(m *message) error {
	switch m.request {
	case setVringKick, setVringCall:
		return f.setEvent(m)
	case setVringAddr:
		a, err := m.vringAddr()
		if err != nil {
			return err
		}
		v, err := f.ring(a.index)
		if err != nil {
			return err
		}
		return f.stopping(func() error {
			v.stop() // it goes on at the new place
			v.addr, v.interrupted = &a, false
			return nil
		})
	default:
	}
	v, value, err := f.vring(m)
	if err != nil {
		return err
	}
	if m.request == setVringEnable {
		if value > 1 { // QEMU enables rings before it has set features
			return fmt.Errorf("%w: ring %d is to be enabled with %d", ErrFrontEnd, v.number, value)
		}
		return f.change(func() error {
			v.idle = value == 0 && (v.idle || v.running.Load())
			v.enabled = value == 1
			return nil
		})
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.ring != nil {
		return fmt.Errorf("%w: message %d about ring %d, which is used", ErrFrontEnd, m.request, v.number)
	}
	if m.request == setVringNum {
		if value == 0 || value > maxRingSize {
			return fmt.Errorf("%w: a ring of %d descriptors", ErrFrontEnd, value)
		}
		v.size = value
		return nil
	}
	v.start = value
	return nil
}

// setEvent takes the descriptor of a ring's kick or call.
func (f *frontEnd) setEvent(m *message) error {
	index, fd, err := m.vringFD()
	if err != nil {
		return err
	}
	v, err := f.ring(index)
	if err != nil {
		return err
	}
	for i := range m.fds {
		m.fds[i] = -1 // taken
	}
	if m.request == setVringKick {
		if fd < 0 {
			return fmt.Errorf("%w: ring %d is to be polled, which is not offered", ErrFrontEnd, index)
		}
		return f.change(func() error { return takeEvent(&v.kick, fd) })
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := takeEvent(&v.call, fd); err != nil || v.call < 0 {
		return err
	}
	v.raiseCall() // for a call that went to the one before
	return nil
}

// reset stops all rings, and forgets what was said of them.
func (f *frontEnd) reset() error {
	f.status = 0
	return f.stopping(f.forgetRings)
}

func (f *frontEnd) forgetRings() error {
	var errs []error
	for _, v := range f.d.rings {
		errs = append(errs, v.forget())
	}
	return errors.Join(errs...)
}

// stopping is change for what stops rings: what they have lent is given back before.
func (f *frontEnd) stopping(fn func() error) error {
	defer f.d.recalled.Store(false)
	if err := f.d.recall(f.memory); err != nil {
		return err
	}
	return f.change(fn)
}

// change changes rings while no burst is under way, and starts those that can be. A burst may
// last: only the connection waits for it.
func (f *frontEnd) change(fn func() error) error {
	d := f.d
	for _, v := range d.rings {
		v.mu.Lock()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, q := range d.queues {
		q.in.forget()
		q.out.forget()
	}
	err := fn()
	for _, v := range d.rings {
		if err == nil {
			err = v.begin(f.memory, f.feats)
		}
		v.running.Store(v.ring != nil && (v.enabled || !f.agreed))
		v.discards.Store(v.ring != nil && v.idle && f.agreed)
		v.mu.Unlock()
	}
	return errors.Join(err, d.wire())
}
