package device

import (
	"cmp"
	"errors"
	"fmt"
	"net"

	"github.com/splitnic/splitnic/fabric"
)

var _ Failing = (*domain)(nil)

// NewDomain implements fabric.Device.
func (d *Device) NewDomain() (fabric.Domain, error) {
	o, err := d.current()
	if err != nil {
		return nil, err
	}
	inner, err := o.Device.NewDomain()
	if err != nil {
		if saysGone(err) {
			err = &goneError{device: d.name, cause: err}
			d.lose(o, err)
		}
		return nil, err
	}
	dom := &domain{
		Domain: inner, device: d, of: o, qps: make(map[uint32]struct{}), cqs: make(map[uint32]struct{}),
	}
	d.mu.Lock()
	o.domains[dom] = struct{}{}
	lost := o.lost
	d.mu.Unlock()
	if lost != nil {
		_ = dom.Close() // of a device that is gone
		return nil, lost
	}
	return dom, nil
}

// Explain implements Failing. EIO alone proves nothing: the device is asked for something else.
func (m *domain) Explain(err error) error {
	if !saysGone(err) || errors.Is(err, ErrGone) {
		return err
	}
	d := m.device
	if probe, failure := m.of.Device.NewDomain(); failure == nil {
		return errors.Join(err, probe.Close())
	} else if saysGone(failure) {
		d.lose(m.of, &goneError{device: d.name, cause: err})
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return cmp.Or(m.of.lost, err)
}

// Close implements fabric.Domain. The driver of a device that is gone may refuse to destroy
// objects: they are given up, and go with the opening of the device.
func (m *domain) Close() error {
	err := m.Explain(m.Domain.Close())
	d := m.device
	d.mu.Lock()
	defer d.mu.Unlock()
	if m.of.lost != nil {
		err = nil
	} else if err != nil {
		return err // it can be closed again
	}
	delete(m.of.domains, m)
	d.discard(m.of)
	return err
}

func (d *Device) current() (*opening, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closed:
		return nil, fmt.Errorf("device %s: %w", d.name, net.ErrClosed)
	case d.now == nil:
		return nil, &goneError{device: d.name}
	}
	return d.now, nil
}
