package lan

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/netns"
)

// ethtoolCmd is struct ethtool_cmd of <linux/ethtool.h>.
type ethtoolCmd struct {
	cmd       uint32
	_         [2]uint32 // supported, advertising
	speed     uint16
	_         [14]byte // duplex ... maxrxpkt
	speedHigh uint16
	_         [14]byte
}

// ethtoolGSet is ETHTOOL_GSET: old, but one call, and every kernel has it.
const ethtoolGSet = 1

// speed returns the speed of a network card in Mbit/s, or 0 if it has none:
// virtual ones do not, nor do cards without a cable.
func speed(ns, nic string) (mbit int) {
	_ = netns.Do(ns, func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		cmd := ethtoolCmd{cmd: ethtoolGSet}
		var req struct {
			name [unix.IFNAMSIZ]byte
			data unsafe.Pointer
			_    [16]byte
		}
		copy(req.name[:unix.IFNAMSIZ-1], nic)
		req.data = unsafe.Pointer(&cmd)
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req)))
		if errno != 0 {
			return errno
		}
		if v := uint32(cmd.speedHigh)<<16 | uint32(cmd.speed); v != 0xffffffff && v != 0xffff {
			mbit = int(v)
		}
		return nil
	})
	return mbit
}
