package lan

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/vnet"
)

// newOutSocket opens an outSocket in the current network namespace.
func newOutSocket(index int) (*outSocket, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket AF_PACKET", err)
	}
	// Frames thereby bypass other packet sockets as well: those of packet ports.
	err = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1)
	if err = os.NewSyscallError("setsockopt PACKET_QDISC_BYPASS", err); err == nil {
		err = os.NewSyscallError("bind", unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: index}))
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return &outSocket{fd}, nil
}

// sendOut sends a frame, [virtio_net_hdr | Ethernet frame], out of the card. The header has
// to be empty.
func (s *shared) sendOut(frame []byte) error {
	if len(frame) < vnet.MinFrame {
		return fmt.Errorf("a frame of %d bytes: %w", len(frame), unix.EINVAL)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.out == nil {
		err := netns.Do(s.ns, func() (err error) {
			s.out, err = newOutSocket(s.index)
			return err
		})
		if err != nil {
			return err
		}
	}
	_, err := unix.Write(s.out.fd, frame[vnet.HdrLen:])
	return os.NewSyscallError("write", err)
}
