package native

import (
	"errors"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/netns"
)

// patience is the time limit of calls on a socket. A measurement that exceeds it has failed.
const patience = 3 * time.Second

// whole repeats a system call until it is not interrupted. The Go runtime uses signals, and the
// kernel does not restart calls with a time limit.
func whole(call func() (int, error)) (n int, err error) {
	for {
		if n, err = call(); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// socket opens an IPv4 socket in a namespace. The socket blocks, for patience at most.
func socket(ns string, kind int) (fd int, err error) {
	err = netns.Do(ns, func() (err error) {
		fd, err = unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC, 0)
		return os.NewSyscallError("socket", err)
	})
	if err != nil {
		return -1, err
	}
	if err := patient(fd); err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

func patient(fd int) error {
	tv := unix.NsecToTimeval(int64(patience))
	return os.NewSyscallError("setsockopt", errors.Join(
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &tv),
	))
}

func sockaddr(addr string, port int) *unix.SockaddrInet4 {
	return &unix.SockaddrInet4{Port: port, Addr: netip.MustParseAddr(addr).As4()}
}
