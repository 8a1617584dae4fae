package tap

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/vnet"
)

// ioctlValue calls ioctl(2) with a number as argument. It is unix.IoctlSetInt with the name
// of the request, such as TUNSETOFFLOAD, in errors.
func ioctlValue(fd int, req uint, name string, v int) error {
	return os.NewSyscallError("ioctl "+name, unix.IoctlSetInt(fd, req, v))
}

// ioctlPointer calls ioctl(2) with a pointer to a number.
func ioctlPointer(fd int, req uint, name string, v int) error {
	return os.NewSyscallError("ioctl "+name, unix.IoctlSetPointerInt(fd, req, v))
}

// ioctlIfreq calls ioctl(2) with a struct ifreq.
func ioctlIfreq(fd int, req uint, name string, r *unix.Ifreq) error {
	return os.NewSyscallError("ioctl "+name, unix.IoctlIfreq(fd, req, r))
}

// getIff reads the name and flags of the device that fd is a queue of.
func getIff(fd int) (name string, flags uint16, err error) {
	var req unix.Ifreq
	err = ioctlIfreq(fd, unix.TUNGETIFF, "TUNGETIFF", &req)
	return req.Name(), req.Uint16(), err
}

// SetIff attaches fd to device name, by the ioctl TUNSETIFF, and returns the
// name that the device got. Errors are bare *os.SyscallError.
func SetIff(fd int, name string, flags uint16) (string, error) {
	req, err := unix.NewIfreq(name)
	if err == nil {
		req.SetUint16(flags)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, req)
	}
	if err != nil {
		return "", os.NewSyscallError("ioctl TUNSETIFF", err)
	}
	return req.Name(), nil
}

// keepMAC sets the MAC address of the device that fd is a queue of to its current value,
// which the kernel has generated. Otherwise udev (MACAddressPolicy=persistent in
// systemd.link(5), which is the default) would replace it at some time during the first
// milliseconds, as it does for each device whose address has not been set explicitly.
func keepMAC(fd int) error {
	var req unix.Ifreq
	if err := ioctlIfreq(fd, unix.SIOCGIFHWADDR, "SIOCGIFHWADDR", &req); err != nil {
		return err
	}
	return ioctlIfreq(fd, unix.SIOCSIFHWADDR, "SIOCSIFHWADDR", &req)
}

// SetHeader makes fd, a queue of a TAP device or macvtap, use the header of package vnet: ten
// bytes, little endian.
func SetHeader(fd int) error {
	if err := ioctlPointer(fd, unix.TUNSETVNETHDRSZ, "TUNSETVNETHDRSZ", vnet.HdrLen); err != nil {
		return err
	}
	return ioctlPointer(fd, unix.TUNSETVNETLE, "TUNSETVNETLE", 1)
}

// SetCarrier turns the carrier of the device that fd is a queue of on or off.
func SetCarrier(fd int, on bool) error {
	v := 0
	if on {
		v = 1
	}
	return ioctlPointer(fd, unix.TUNSETCARRIER, "TUNSETCARRIER", v)
}

// SetOffloads sets the offloads that frames read from fd may use, and returns those that the
// kernel has accepted: before Linux 6.2 without USO.
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
