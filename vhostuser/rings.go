package vhostuser

import (
	"errors"
	"fmt"
)

// vring returns the ring of a message, and the value for it.
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
			v.stop() // it is started again at the new addresses
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

// setEvent sets the descriptor of a ring's kick or call.
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
	v.raiseCall() // in case a call went to the descriptor before
	return nil
}

// reset stops all rings, and resets their configuration.
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

// stopping is change for functions that stop rings. It waits for the return of all lent buffers.
func (f *frontEnd) stopping(fn func() error) error {
	defer f.d.recalled.Store(false)
	if err := f.d.recall(f.memory); err != nil {
		return err
	}
	return f.change(fn)
}

// change calls fn while no burst is in progress, and then starts all rings that can be started. Only
// the connection waits for a long burst.
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
