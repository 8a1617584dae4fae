package tap

import (
	"fmt"

	"golang.org/x/sys/unix"
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
