package tap

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/netns"
)

// Adopt makes a Device of the descriptors of a device that another process opened with Open.
// fds are all of its descriptors, in their order. Adopt owns them from then on, also when it
// fails. The device may have been renamed, and moved to another network namespace. It keeps
// its settings, its carrier and the frames that wait in its queues. Of cfg only Queues, Plain,
// Offloads, NoRing, NoDiscard and Persist are used, and TxQueueLen if it differs from the
// length that the device was opened with. If cfg has more queues the missing ones are opened,
// if it has fewer the last ones are closed.
//
// Adopt fails if the descriptors are not queues such as Open makes, or not all of one device.
// If the device was deleted, the error wraps ErrGone.
func Adopt(cfg Config, fds []int) (*Device, error) {
	d := &opening{Device: &Device{plain: cfg.Plain, taken: true}}
	for _, fd := range fds {
		d.queues = append(d.queues, newQueue(fd, cfg.Plain))
	}
	fail := func(err error) (*Device, error) {
		return nil, fmt.Errorf("adopting a TAP device: %w", errors.Join(err, d.Close()))
	}
	if err := cfg.complete(); err != nil {
		return fail(err)
	}
	d.cfg = cfg
	for _, step := range []func() error{d.inspect, d.resize, d.resume, d.setPersist} {
		if err := step(); err != nil {
			return fail(err)
		}
	}
	return d.ready(), nil
}

// inspect checks that the queues are of one device, which has no others, and sets d.name. It
// also makes the descriptors close-on-exec and non-blocking.
func (d *opening) inspect() error {
	if len(d.queues) == 0 {
		return errors.New("there is none")
	}
	var first namespace
	for i, q := range d.queues {
		unix.CloseOnExec(q.FD())
		if err := unix.SetNonblock(q.FD(), true); err != nil {
			return fmt.Errorf("queue %d: %w", i, os.NewSyscallError("fcntl", err))
		}
		name, flags, err := getIff(q.FD())
		if err != nil {
			if errors.Is(err, unix.EBADFD) {
				err = fmt.Errorf("%w: %w", ErrGone, err)
			}
			return fmt.Errorf("queue %d: %w", i, err)
		}
		// Other flags may differ between the two processes.
		const features = unix.IFF_TUN | unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR | unix.IFF_MULTI_QUEUE
		if got := flags & features; got != d.flags() {
			return fmt.Errorf("queue %d: its flags are %#x instead of %#x, as after advanced.plain was changed", i, got,
				d.flags())
		}
		q.detached = flags&unix.IFF_DETACH_QUEUE != 0
		file, id, err := namespaceOf(q.FD())
		if err != nil {
			return fmt.Errorf("queue %d: %w", i, err)
		}
		if err := file.Close(); err != nil {
			return err
		}
		if i == 0 {
			d.name, first = name, id
		}
		if name != d.name || id != first {
			return fmt.Errorf("queue %d is of %s, and queue 0 of %s", i, name, d.name)
		}
	}
	return d.alone()
}

// resize gives the device as many queues as configured.
func (d *opening) resize() error {
	n := d.cfg.Queues
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
	return d.alone() // if the device was renamed meanwhile, join has opened another one
}
