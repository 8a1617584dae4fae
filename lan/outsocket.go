package lan

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/vnet"
)

// packetSocket makes a packet socket without a protocol, which receives nothing yet.
func packetSocket() (int, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		err = os.NewSyscallError("socket AF_PACKET", err)
		if errors.Is(err, unix.EPERM) {
			return -1, fmt.Errorf("%w (needs CAP_NET_RAW)", err)
		}
		return -1, err
	}
	return fd, nil
}

// outSocket opens a socket that sends frames out of a card and receives none, in the current
// network namespace. Ports on the card do not get its frames. A frame sent through a port, by
// contrast, would be copied to all others, and these need no announcement to reach each other's
// hosts.
func outSocket(index int) (int, error) {
	fd, err := packetSocket()
	if err != nil {
		return -1, err
	}
	// Frames thereby bypass other packet sockets as well: those of packet ports.
	err = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1)
	if err = os.NewSyscallError("setsockopt PACKET_QDISC_BYPASS", err); err == nil {
		err = os.NewSyscallError("bind", unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: index}))
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// sendOut sends a frame, [virtio_net_hdr | Ethernet frame], out of the card. The header has
// to be empty.
func (s *shared) sendOut(frame []byte) error {
	if len(frame) < vnet.MinFrame {
		return fmt.Errorf("a frame of %d bytes: %w", len(frame), unix.EINVAL)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.out < 0 {
		err := netns.Do(s.ns, func() (err error) {
			s.out, err = outSocket(s.index)
			return err
		})
		if err != nil {
			return err
		}
	}
	_, err := unix.Write(s.out, frame[vnet.HdrLen:])
	return os.NewSyscallError("write", err)
}
