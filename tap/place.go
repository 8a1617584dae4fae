package tap

import (
	"fmt"
	"os"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/netns"
)

// place is where a device was found last: a netlink handle to its network
// namespace, and which namespace that is.
type place struct {
	handle *netlink.Handle
	dev    uint64 // of the namespace's file, as is ino: together they identify it
	ino    uint64
}

func (p *place) close() {
	if p.handle != nil {
		p.handle.Close()
	}
}

// netlink runs fn with a handle to the network namespace that the device is in,
// and the device as it is there, and wraps fn's error. Both are asked of the
// device itself each time, since an administrator may rename it, or move it
// with `ip link set sn0 netns NAME`. When it was deleted the error wraps
// unix.EBADFD.
func (d *Device) netlink(what string, fn func(*netlink.Handle, netlink.Link) error) error {
	return d.do(what, func() error {
		req := ifreq{}
		if err := d.ioctl(unix.TUNGETIFF, "TUNGETIFF", unsafe.Pointer(&req)); err != nil {
			return err
		}
		if err := d.follow(); err != nil {
			return err
		}
		link, err := d.place.handle.LinkByName(unix.ByteSliceToString(req.name[:]))
		if err != nil {
			return err
		}
		return fn(d.place.handle, link)
	})
}

func (d *Device) ioctl(req uint, name string, arg unsafe.Pointer) error {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(d.queues[0].FD()), uintptr(req), uintptr(arg))
	if errno != 0 {
		return os.NewSyscallError("ioctl "+name, errno)
	}
	return nil
}

// follow makes d.place the device's namespace.
func (d *Device) follow() error {
	fd, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(d.queues[0].FD()), unix.TUNGETDEVNETNS, 0)
	if errno != 0 {
		return os.NewSyscallError("ioctl TUNGETDEVNETNS", errno)
	}
	defer unix.Close(int(fd))
	var st unix.Stat_t
	if err := unix.Fstat(int(fd), &st); err != nil {
		return os.NewSyscallError("fstat", err)
	}
	if d.place.handle != nil && d.place.dev == st.Dev && d.place.ino == st.Ino {
		return nil
	}
	handle, err := netns.Handle(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return err
	}
	d.place.close()
	d.place = place{handle: handle, dev: st.Dev, ino: st.Ino}
	return nil
}
