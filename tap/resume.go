package tap

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"

	"github.com/splitnic/splitnic/internal/printable"
	"github.com/splitnic/splitnic/vnet"
)

// resume is configure for a device that existed before.
func (d *opening) resume() error {
	err := d.netlink("reading the label", func(_ *netlink.Handle, l netlink.Link) error {
		d.index = l.Attrs().Index
		d.label, _ = labelOf(l)
		return nil
	})
	if err != nil {
		return err
	}
	if d.label.Name == "" {
		d.label.Name = printable.Text(d.name) // whoever is root in its namespace can rename it
	}
	d.name = d.label.Name
	d.label.Adopted++
	if !d.plain {
		if err := SetHeader(d.queues[0].FD()); err != nil {
			return err
		}
		if _, err := d.SetOffloads(d.cfg.Offloads); err != nil {
			return err
		}
		if err := d.boundGSO(); err != nil {
			return err
		}
	}
	if d.label.TxQueueLen != d.cfg.TxQueueLen && d.label.TxQueueLen != 0 {
		err := d.netlink(fmt.Sprintf("setting the queue length to %d", d.cfg.TxQueueLen),
			func(h *netlink.Handle, l netlink.Link) error {
				return h.LinkSetTxQLen(l, d.cfg.TxQueueLen)
			})
		if err != nil {
			return err
		}
	}
	d.label.TxQueueLen = d.cfg.TxQueueLen
	return d.setLabel(d.Label())
}

// boundGSO is SetGSOMaxSize for an existing device. It keeps a lower value, which an
// administrator may have set.
func (d *opening) boundGSO() error {
	a, err := d.attrs("reading gso_max_size")
	if err != nil || a.GSOMaxSize <= vnet.GSOMaxSize {
		return err
	}
	return d.SetGSOMaxSize(vnet.GSOMaxSize)
}

// errBusy is the error for a persistent device that another process has open.
var errBusy = errors.New("another process has it (end that one, or choose another name)")

// reattach opens the queues of the persistent device with the configured name, in the current
// namespace, and reports whether a device of this name exists. The device must have been made
// by splitnic, and no other process may have it open.
func (d *opening) reattach() (there bool, err error) {
	link, err := netlink.LinkByName(d.cfg.Name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	t, ok := link.(*netlink.Tuntap)
	if _, ours := labelOf(link); !ok || !ours || t.NonPersist {
		return true, fmt.Errorf("%w: %s", ErrExists, describe(link))
	}
	if t.Queues+t.DisabledQueues > 0 {
		return true, fmt.Errorf("%w: %w", ErrExists, errBusy)
	}
	d.name, d.taken = d.cfg.Name, true
	if err := d.join(d.cfg.Name, d.cfg.Queues, d.flags()); err != nil {
		return true, d.explain(err)
	}
	if err := d.SetCarrier(false); err != nil {
		return true, err
	}
	if err := d.alone(); err != nil {
		return true, fmt.Errorf("%w: %w", ErrExists, err) // another process took it over at the same time
	}
	return true, nil
}

// alone returns an error if another process has queues of the device.
func (d *opening) alone() error {
	return d.netlink("counting the queues", func(_ *netlink.Handle, l netlink.Link) error {
		t, ok := l.(*netlink.Tuntap)
		if !ok {
			return fmt.Errorf("this is a device of type %s", l.Type())
		}
		if n := t.Queues + t.DisabledQueues; n != len(d.queues) {
			return fmt.Errorf("it has %d queues, and %d of them are here: another process has the others", n, len(d.queues))
		}
		return nil
	})
}
