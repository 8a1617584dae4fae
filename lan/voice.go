package lan

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/vnet"
)

// voice is a socket that sends frames out of the card and receives none. What it
// sends, the ports on the card do not get: an announcement through a port is
// copied to all others, which know each other's hosts without it.
type voice struct{ fd int }

// newVoice opens a voice in the current namespace.
func newVoice(index int) (*voice, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket AF_PACKET", err)
	}
	// Past other packet sockets too, those of packet ports.
	err = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1)
	if err = os.NewSyscallError("setsockopt PACKET_QDISC_BYPASS", err); err == nil {
		err = os.NewSyscallError("bind", unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: index}))
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return &voice{fd}, nil
}

func (v *voice) close() { unix.Close(v.fd) }

// say sends a frame, [virtio_net_hdr | Ethernet frame], of which the header is
// empty, out of the card.
func (s *shared) say(frame []byte) error {
	if len(frame) < vnet.MinFrame {
		return fmt.Errorf("a frame of %d bytes: %w", len(frame), unix.EINVAL)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.voice == nil {
		err := netns.Do(s.ns, func() (err error) {
			s.voice, err = newVoice(s.index)
			return err
		})
		if err != nil {
			return err
		}
	}
	_, err := unix.Write(s.voice.fd, frame[vnet.HdrLen:])
	return os.NewSyscallError("write", err)
}
