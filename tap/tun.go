package tap

import (
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// tun identifies a device to the kernel by the descriptors of its queues, whatever its name is
// by now. It finds out the network namespace of the device, and sends requests there.
type tun struct {
	name   string // name when the device was made
	queues []*Queue

	mu       sync.Mutex // guards the fields below and those marked in Device, and ioctls against Close
	closed   bool
	location location
}

// do runs fn on the open device and wraps its error.
func (t *tun) do(what string, fn func() error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return fmt.Errorf("%s of %s: %w", what, t.name, net.ErrClosed)
	}
	if err := fn(); err != nil {
		return fmt.Errorf("%s of %s: %w", what, t.name, err)
	}
	return nil
}

// netlink runs fn with a handle to the network namespace of the device, and with its link
// there, and wraps fn's error. It reads namespace and name from a queue's descriptor each
// time, because an administrator may rename the device, or move it with
// `ip link set sn0 netns NAME`. If the device was deleted the error wraps ErrGone and
// unix.EBADFD.
func (t *tun) netlink(what string, fn func(*netlink.Handle, netlink.Link) error) error {
	return t.do(what, func() error {
		name, err := t.locate()
		if err != nil {
			return err
		}
		link, err := t.location.handle.LinkByName(name)
		if err != nil {
			return err
		}
		return fn(t.location.handle, link)
	})
}

// attrs returns the attributes of the device, or none with an error.
func (t *tun) attrs(what string) (a netlink.LinkAttrs, err error) {
	err = t.netlink(what, func(_ *netlink.Handle, l netlink.Link) error {
		a = *l.Attrs()
		return nil
	})
	return a, err
}

// locate makes t.location the device's current namespace and returns the device's name there.
func (t *tun) locate() (string, error) {
	name, _, err := getIff(t.queues[0].FD())
	if err == nil {
		err = t.follow()
	}
	if errors.Is(err, unix.EBADFD) {
		err = fmt.Errorf("%w: %w", ErrGone, err)
	}
	return name, err
}

// follow makes t.location the device's current namespace.
func (t *tun) follow() error {
	file, id, err := namespaceOf(t.queues[0].FD())
	if err != nil {
		return err
	}
	if t.location.file != nil && t.location.id == id {
		return file.Close()
	}
	t.location.close()
	return t.location.open(id, file)
}

// read fills in s, and returns the digest of the state read.
func (t *tun) read(s *State) (digest, error) {
	for try := 0; ; try++ {
		name, err := t.locate()
		if err != nil {
			return digest{}, err
		}
		l, err := t.location.link(name)
		if errors.Is(err, unix.ENODEV) && try < 3 {
			continue // it was renamed, or moved, in between
		}
		if err != nil {
			return digest{}, fmt.Errorf("asking for device %s: %w", name, err)
		}
		multicast, err := t.location.readMulticast()
		if err != nil {
			return digest{}, err
		}
		unicast, err := t.location.unicast(l.index)
		if err != nil {
			return digest{}, err
		}
		// The kernel makes a device that cannot filter additional unicast addresses
		// promiscuous when it has some.
		implied := uint32(min(len(unicast), 1))
		groups, stacked := parseMulticast(multicast, l.index)
		*s = State{
			Up: l.flags&unix.IFF_UP != 0, MAC: l.mac, MTU: int(l.mtu),
			Promisc: l.promisc > implied, AllMulti: l.allmulti > 0,
			PromiscSet: l.flags&unix.IFF_PROMISC != 0, AllMultiSet: l.flags&unix.IFF_ALLMULTI != 0,
			Unicast: ordered(unicast), Multicast: ordered(groups),
			Trunk: l.master != 0,
		}
		err = t.location.stacked(l.index, stacked, s)
		return digest{t.location.id, l.index, l.promisc, l.allmulti, l.master, unicast, multicast}, err
	}
}
