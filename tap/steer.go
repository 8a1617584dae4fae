package tap

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/tap/steer"
)

// SetActive makes the kernel use only the first n queues; n is at least 1. It detaches the
// others with the ioctl TUNSETQUEUE: the kernel puts no frames into a detached queue. The
// frames that are in a queue when it is detached are lost.
func (d *Device) SetActive(n int) error {
	if n < 1 || n > len(d.queues) {
		return fmt.Errorf("using %d queues of %s: it has %d", n, d.name, len(d.queues))
	}
	return d.do(fmt.Sprintf("using %d queues", n), func() error {
		for i, q := range d.queues {
			if (i < n) == !q.detached {
				continue
			}
			var req unix.Ifreq
			req.SetUint16(unix.IFF_ATTACH_QUEUE)
			if i >= n {
				req.SetUint16(unix.IFF_DETACH_QUEUE)
			}
			passed := q.meter.Passed()
			if err := ioctlIfreq(q.FD(), unix.TUNSETQUEUE, "TUNSETQUEUE", &req); err != nil {
				return err
			}
			q.detached = i >= n
			q.meter.Emptied(passed) // frames that were in it when it was detached are lost
		}
		return nil
	})
}

// Steer makes the kernel put latency-sensitive frames into the last queue and spread the
// others over the other queues, as r says. r.Queues is the number of queues in use
// (SetActive). If r is nil the kernel chooses the queues again: it puts a flow into the queue
// to which frames of that flow are written. If the kernel does not support steering, the error
// wraps steer.ErrUnavailable and nothing changes.
func (d *Device) Steer(r *steer.Rule) error {
	if r == nil {
		return d.do("steering", func() error {
			err := ioctlPointer(d.queues[0].FD(), unix.TUNSETSTEERINGEBPF, "TUNSETSTEERINGEBPF", -1)
			if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTTY) {
				return nil // the kernel does not support steering: there is nothing to undo
			}
			return err
		})
	}
	p, err := r.Load(steer.TAP)
	if err != nil {
		return fmt.Errorf("steering of %s: %w", d.name, err)
	}
	// The device keeps the program.
	defer p.Close()
	return d.do("steering", func() error {
		err := ioctlPointer(d.queues[0].FD(), unix.TUNSETSTEERINGEBPF, "TUNSETSTEERINGEBPF", p.FD())
		if err != nil {
			return fmt.Errorf("%w: %w", steer.ErrUnavailable, err)
		}
		return nil
	})
}
