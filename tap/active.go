package tap

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// SetActive makes the kernel use the first n queues only, by the ioctl
// TUNSETQUEUE: it puts no frame into one that is detached. n is at least 1.
// What lies in a queue when it is detached is lost.
func (d *Device) SetActive(n int) error {
	if n < 1 || n > len(d.queues) {
		return fmt.Errorf("using %d queues of %s: it has %d", n, d.name, len(d.queues))
	}
	return d.do(fmt.Sprintf("using %d queues", n), func() error {
		for i, q := range d.queues {
			if (i < n) == !q.detached {
				continue
			}
			req := ifreq{flags: unix.IFF_ATTACH_QUEUE}
			if i >= n {
				req.flags = unix.IFF_DETACH_QUEUE
			}
			passed := q.meter.Passed()
			_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(q.FD()), unix.TUNSETQUEUE, uintptr(unsafe.Pointer(&req)))
			if errno != 0 {
				return os.NewSyscallError("ioctl TUNSETQUEUE", errno)
			}
			q.detached = i >= n
			q.meter.Emptied(passed) // what was in it when it was detached is not read any more
		}
		return nil
	})
}
