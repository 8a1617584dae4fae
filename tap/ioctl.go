package tap

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/vnet"
)

// ioctlValue is ioctl(2) with an argument that is a number. unix.IoctlSetInt
// does the same, but TUNSETOFFLOAD deserves its own name in errors.
func ioctlValue(fd int, req uint, name string, v int) error {
	return os.NewSyscallError("ioctl "+name, unix.IoctlSetInt(fd, req, v))
}

// ioctlPointer is ioctl(2) with a pointer to a number.
func ioctlPointer(fd int, req uint, name string, v int) error {
	return os.NewSyscallError("ioctl "+name, unix.IoctlSetPointerInt(fd, req, v))
}

// ifreq is struct ifreq with its flags, which unix.Ifreq cannot set beyond
// Uint16 and whose name the kernel fills in.
type ifreq struct {
	name  [unix.IFNAMSIZ]byte
	flags uint16
	_     [22]byte
}

// get reads name and flags of the device that fd is a queue of.
func (r *ifreq) get(fd int) error {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TUNGETIFF, uintptr(unsafe.Pointer(r)))
	if errno != 0 {
		return os.NewSyscallError("ioctl TUNGETIFF", errno)
	}
	return nil
}

// SetIff attaches fd to device name, by the ioctl TUNSETIFF, and returns the
// name that the device got. Errors are bare *os.SyscallError.
func SetIff(fd int, name string, flags uint16) (string, error) {
	req := ifreq{flags: flags}
	copy(req.name[:unix.IFNAMSIZ-1], name)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TUNSETIFF, uintptr(unsafe.Pointer(&req)))
	if errno != 0 {
		return "", os.NewSyscallError("ioctl TUNSETIFF", errno)
	}
	return unix.ByteSliceToString(req.name[:]), nil
}

// keepMAC sets the MAC address of the device that fd is a queue of to what it
// is. It is one that the kernel has made up, and udev (MACAddressPolicy=persistent
// in systemd.link(5), which is the default) gives another one to devices whose
// address nobody has set, at some time during the first milliseconds.
func keepMAC(fd int) error {
	var req ifreq
	for _, c := range []struct {
		number uintptr
		name   string
	}{{unix.SIOCGIFHWADDR, "SIOCGIFHWADDR"}, {unix.SIOCSIFHWADDR, "SIOCSIFHWADDR"}} {
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), c.number, uintptr(unsafe.Pointer(&req))); errno != 0 {
			return os.NewSyscallError("ioctl "+c.name, errno)
		}
	}
	return nil
}

// SetHeader makes fd, attached to a TAP or a macvtap, speak the header of
// package vnet: ten bytes, little endian.
func SetHeader(fd int) error {
	if err := ioctlPointer(fd, unix.TUNSETVNETHDRSZ, "TUNSETVNETHDRSZ", vnet.HdrLen); err != nil {
		return err
	}
	return ioctlPointer(fd, unix.TUNSETVNETLE, "TUNSETVNETLE", 1)
}

// SetCarrier gives or takes the carrier of the device that fd is a queue of.
func SetCarrier(fd int, on bool) error {
	v := 0
	if on {
		v = 1
	}
	return ioctlPointer(fd, unix.TUNSETCARRIER, "TUNSETCARRIER", v)
}

// SetOffloads tells the device behind fd what frames it may leave unfinished
// and returns what it took: without USO before Linux 6.2.
func SetOffloads(fd int, o vnet.Offloads) (vnet.Offloads, error) {
	o = o.Closure()
	err := ioctlValue(fd, unix.TUNSETOFFLOAD, "TUNSETOFFLOAD", o.TUNFlags())
	if err != nil && o&vnet.USO != 0 {
		o &^= vnet.USO
		err = ioctlValue(fd, unix.TUNSETOFFLOAD, "TUNSETOFFLOAD", o.TUNFlags())
	}
	if err != nil {
		return 0, fmt.Errorf("setting offloads %v: %w", o, err)
	}
	return o, nil
}
