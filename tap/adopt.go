package tap

import (
	"errors"
	"fmt"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/tap/discard"
	"github.com/splitnic/splitnic/vnet"
)

// Adopt makes a Device of the descriptors of one that another process opened
// with Open: all of them, in their order, and owns them from then on, also when
// it fails. The device may have been renamed, and moved to another network
// namespace. It keeps everything it has, carrier and waiting frames included;
// of cfg only Queues, Offloads, NoRing and Persist count, and TxQueueLen if it
// is another than it was opened with. With more queues in cfg the missing ones
// are opened, with fewer the last ones are closed.
//
// It fails if the descriptors are not queues such as Open would make, or not all
// of one device. If that was deleted, the error wraps ErrGone.
func Adopt(cfg Config, fds []int) (*Device, error) { return adopt(cfg, false, fds) }

// AdoptPlain is Adopt for devices of OpenPlain.
func AdoptPlain(cfg Config, fds []int) (*Device, error) { return adopt(cfg, true, fds) }

func adopt(cfg Config, plain bool, fds []int) (*Device, error) {
	d := &Device{plain: plain, taken: true}
	for _, fd := range fds {
		d.queues = append(d.queues, d.newQueue(fd))
	}
	fail := func(err error) (*Device, error) {
		return nil, fmt.Errorf("adopting a TAP device: %w", errors.Join(err, d.Close()))
	}
	if err := cfg.complete(); err != nil {
		return fail(err)
	}
	err := d.inspect()
	if err == nil {
		err = d.resize(cfg.Queues)
	}
	if err == nil {
		err = d.resume(cfg)
	}
	if err == nil {
		err = d.setPersist(cfg.Persist)
	}
	if err != nil {
		return fail(err)
	}
	d.useRings(cfg)
	d.discards = discard.StatusOf(d.discardEarly(cfg)) // a kernel that cannot do it is no error
	return d, nil
}

// inspect looks at what the queues are of, and whether they are all that the
// device has.
func (d *Device) inspect() error {
	if len(d.queues) == 0 {
		return errors.New("there is none")
	}
	var first namespace
	for i, q := range d.queues {
		unix.CloseOnExec(q.FD())
		if err := unix.SetNonblock(q.FD(), true); err != nil {
			return fmt.Errorf("queue %d: %w", i, os.NewSyscallError("fcntl", err))
		}
		var req ifreq
		if err := req.get(q.FD()); err != nil {
			if errors.Is(err, unix.EBADFD) {
				err = fmt.Errorf("%w: %w", ErrGone, err)
			}
			return fmt.Errorf("queue %d: %w", i, err)
		}
		// What the next process may do differently does not count.
		const features = unix.IFF_TUN | unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR | unix.IFF_MULTI_QUEUE
		if got := req.flags & features; got != d.flags() {
			return fmt.Errorf("queue %d: its flags are %#x instead of %#x, as after --plain was changed", i, got, d.flags())
		}
		q.detached = req.flags&unix.IFF_DETACH_QUEUE != 0
		file, id, err := namespaceOf(q.FD())
		if err != nil {
			return fmt.Errorf("queue %d: %w", i, err)
		}
		if err := file.Close(); err != nil {
			return err
		}
		name := unix.ByteSliceToString(req.name[:])
		if i == 0 {
			d.name, first = name, id
		}
		if name != d.name || id != first {
			return fmt.Errorf("queue %d is of %s, and queue 0 of %s", i, name, d.name)
		}
	}
	return d.alone()
}

// alone returns an error if anybody else has queues of the device.
func (d *Device) alone() error {
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

// resize gives the device n queues.
func (d *Device) resize(n int) error {
	var errs []error
	for len(d.queues) > n {
		last := len(d.queues) - 1
		errs = append(errs, d.queues[last].Close())
		d.queues = d.queues[:last]
	}
	if err := errors.Join(errs...); err != nil || len(d.queues) == n {
		return err
	}
	err := d.do("opening more queues", func() error {
		name, err := d.locate()
		if err != nil {
			return err
		}
		return netns.Do(fmt.Sprintf("/proc/self/fd/%d", d.location.file.Fd()), func() error {
			return d.join(name, n, d.flags())
		})
	})
	if err != nil {
		return err
	}
	return d.alone() // a device that was renamed meanwhile is another one
}

// join opens queues of a device that exists, until d has n of them, in the
// current namespace.
func (d *Device) join(name string, n int, flags uint16) error {
	for len(d.queues) < n {
		fd, err := openTun()
		if err != nil {
			return err
		}
		if len(d.queues) == 0 {
			flags |= quietStart(fd)
		}
		q := d.newQueue(fd)
		if _, err := SetIff(fd, name, flags); err != nil {
			return errors.Join(err, q.Close())
		}
		d.queues = append(d.queues, q)
	}
	return nil
}

// resume is configure for a device that was there before.
func (d *Device) resume(cfg Config) error {
	err := d.netlink("reading the label", func(_ *netlink.Handle, l netlink.Link) error {
		d.index = l.Attrs().Index
		d.label, _ = labelOf(l)
		return nil
	})
	if err != nil {
		return err
	}
	if d.label.Name != "" {
		d.name = d.label.Name
	}
	d.label.Name = d.name
	d.label.Adopted++
	if !d.plain {
		if err := SetHeader(d.queues[0].FD()); err != nil {
			return err
		}
		if _, err := d.SetOffloads(cfg.Offloads); err != nil {
			return err
		}
		if err := d.boundGSO(); err != nil {
			return err
		}
	}
	if d.label.TxQueueLen != cfg.TxQueueLen && d.label.TxQueueLen != 0 {
		err := d.netlink(fmt.Sprintf("setting the queue length to %d", cfg.TxQueueLen),
			func(h *netlink.Handle, l netlink.Link) error {
				return h.LinkSetTxQLen(l, cfg.TxQueueLen)
			})
		if err != nil {
			return err
		}
	}
	d.label.TxQueueLen = cfg.TxQueueLen
	return d.setLabel(d.Label())
}

// boundGSO is SetGSOMaxSize for a device on which an administrator may have set
// less.
func (d *Device) boundGSO() error {
	a, err := d.attrs("reading gso_max_size")
	if err != nil || a.GSOMaxSize <= vnet.GSOMaxSize {
		return err
	}
	return d.SetGSOMaxSize(vnet.GSOMaxSize)
}

// errBusy is why a persistent device cannot be taken over.
var errBusy = errors.New("another process has it (end that one, or choose another name)")

// reattach opens the queues of the persistent device of that name, in the
// current namespace, and reports whether there is one. It has to be one of
// ours, and nobody else's at present.
func (d *Device) reattach(cfg Config) (there bool, err error) {
	link, err := netlink.LinkByName(cfg.Name)
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
	d.name, d.taken = cfg.Name, true
	if err := d.join(cfg.Name, cfg.Queues, d.flags()); err != nil {
		return true, d.explain(cfg.Name, err)
	}
	if err := d.SetCarrier(false); err != nil {
		return true, err
	}
	if err := d.alone(); err != nil {
		return true, fmt.Errorf("%w: %w", ErrExists, err) // somebody was as fast
	}
	return true, nil
}

// setPersist says whether the device outlives its last descriptor.
func (d *Device) setPersist(on bool) error {
	v := 0
	if on {
		v = 1
	}
	return d.do(fmt.Sprintf("setting persistence to %t", on), func() error {
		return ioctlValue(d.queues[0].FD(), unix.TUNSETPERSIST, "TUNSETPERSIST", v)
	})
}
