// Package ethtool reads and sets the speed of network devices, as ethtool(8)
// shows it. It is no library: github.com/safchain/ethtool keeps the caller's
// pointer as an integer across calls, which the rules of package unsafe forbid,
// and takes no socket of another network namespace; github.com/mdlayher/ethtool
// sets no speed.
package ethtool

import (
	"math"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// command is struct ethtool_cmd of <linux/ethtool.h>. The commands that it is for
// are old, but one call each, and every kernel has them.
type command struct {
	cmd       uint32
	_         [2]uint32 // supported, advertising
	speed     uint16
	duplex    uint8
	_         [13]byte // port ... maxrxpkt
	speedHigh uint16
	_         [14]byte
}

// Numbers of commands, and the values that stand for "not known".
const (
	get = 1 // ETHTOOL_GSET
	set = 2 // ETHTOOL_SSET

	duplexFull    = 1
	duplexUnknown = 0xff
	speedUnknown  = 1<<32 - 1
)

// Speed returns the speed of a network device in Mbit/s, or 0 if that is not
// known: virtual ones have none, nor have cards without a cable. The device is
// the one of that name in the network namespace of the socket, which may be of any
// family.
func Speed(socket int, name string) (mbit int, err error) {
	c := command{cmd: get}
	if err := c.do(socket, name, "ETHTOOL_GSET"); err != nil {
		return 0, err
	}
	if v := uint32(c.speedHigh)<<16 | uint32(c.speed); v != speedUnknown && v != 0xffff {
		return int(v), nil
	}
	return 0, nil
}

// SetSpeed has a network device show a speed in Mbit/s, full duplex, or, if that
// is 0 or no number that ethtool has, that neither is known.
func SetSpeed(socket int, name string, mbit int) error {
	// What there is besides stays.
	c := command{cmd: get}
	if err := c.do(socket, name, "ETHTOOL_GSET"); err != nil {
		return err
	}
	speed := uint32(mbit)
	c.cmd, c.duplex = set, duplexFull
	if mbit <= 0 || mbit > math.MaxInt32 {
		speed, c.duplex = speedUnknown, duplexUnknown
	}
	c.speed, c.speedHigh = uint16(speed), uint16(speed>>16)
	return c.do(socket, name, "ETHTOOL_SSET")
}

// do carries out the ioctl SIOCETHTOOL.
func (c *command) do(socket int, name, what string) error {
	var req struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}
	copy(req.name[:unix.IFNAMSIZ-1], name)
	req.data = unsafe.Pointer(c)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(socket), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req)))
	if errno != 0 {
		return os.NewSyscallError("ioctl SIOCETHTOOL "+what, errno)
	}
	return nil
}
