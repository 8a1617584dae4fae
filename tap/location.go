package tap

import (
	"errors"
	"fmt"
	"os"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/ethtool"
	"github.com/splitnic/splitnic/internal/netns"
)

// multicastFile lists the link-layer groups of all devices in the network namespace of the
// thread that opens it. No netlink message has them.
const multicastFile = "/proc/thread-self/net/dev_mcast"

// namespace identifies a network namespace by its file.
type namespace struct{ dev, ino uint64 }

// location is the network namespace in which a device was found last, with the sockets and
// files for requests there.
type location struct {
	id        namespace
	file      *os.File // the namespace; nil when nothing is open
	handle    *netlink.Handle
	query     *nl.SocketHandle // for requests that handle does not have
	speeds    *ethtool.Client  // nil before the first speed is set
	multicast *os.File         // multicastFile of the namespace
	glances   int              // socket for glances; 0 when it is not open
}

func (p *location) close() {
	if p.handle != nil {
		p.handle.Close()
	}
	if p.query != nil {
		p.query.Close()
	}
	if p.speeds != nil {
		_ = p.speeds.Close() // nothing was written
	}
	if p.glances != 0 {
		_ = unix.Close(p.glances) // nothing was written
	}
	for _, f := range []*os.File{p.multicast, p.file} {
		if f != nil {
			_ = f.Close() // nothing was written
		}
	}
	*p = location{}
}

// setSpeed sets the speed that the device with this name reports, in Mbit/s.
func (p *location) setSpeed(name string, mbit int) error {
	if p.speeds == nil {
		err := netns.Do(fmt.Sprintf("/proc/self/fd/%d", p.file.Fd()), func() (err error) {
			p.speeds, err = ethtool.New()
			return err
		})
		if err != nil {
			return err
		}
	}
	return p.speeds.SetSpeed(name, mbit)
}

// open makes p the location in the namespace of file, which p owns from then on.
func (p *location) open(id namespace, file *os.File) error {
	p.id, p.file = id, file
	err := netns.Do(fmt.Sprintf("/proc/self/fd/%d", file.Fd()), func() error {
		var err error
		if p.handle, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
			return fmt.Errorf("opening netlink: %w", err)
		}
		return errors.Join(p.openQuery(), p.openGlances())
	})
	if errors.Is(err, unix.EPERM) {
		err = fmt.Errorf("%w; the device is in another network namespace: `splitnic host` follows it there with --movable or --netns", err)
	}
	if err != nil {
		p.close()
	}
	return err
}

// openQuery opens a socket for requests, and multicastFile, in the calling
// thread's namespace.
func (p *location) openQuery() error {
	f, err := os.Open(multicastFile)
	if err != nil {
		return err
	}
	s, err := nl.Subscribe(unix.NETLINK_ROUTE)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	p.multicast, p.query = f, &nl.SocketHandle{Socket: s}
	return nil
}

// openGlances opens a socket for glances in the calling thread's namespace. The socket is not
// in Go's poller, which would wake up for each answer.
func (p *location) openGlances() error {
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	// The socket receives from the kernel only.
	if err := unix.Connect(s, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return errors.Join(os.NewSyscallError("connect", err), unix.Close(s))
	}
	p.glances = s
	return nil
}

// namespaceOf opens the network namespace of the device that fd is a queue of.
func namespaceOf(fd int) (*os.File, namespace, error) {
	ns, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TUNGETDEVNETNS, 0)
	if errno != 0 {
		return nil, namespace{}, os.NewSyscallError("ioctl TUNGETDEVNETNS", errno)
	}
	file := os.NewFile(ns, "network namespace")
	var st unix.Stat_t
	if err := unix.Fstat(int(ns), &st); err != nil {
		return nil, namespace{}, errors.Join(os.NewSyscallError("fstat", err), file.Close())
	}
	return file, namespace{st.Dev, st.Ino}, nil
}
