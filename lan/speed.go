package lan

import (
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/ethtool"
	"github.com/splitnic/splitnic/internal/netns"
)

// speed returns the speed of a network card in Mbit/s, or 0 if it has none.
func speed(ns, nic string) (mbit int) {
	_ = netns.Do(ns, func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		mbit, err = ethtool.Speed(fd, nic)
		return err
	})
	return mbit
}
