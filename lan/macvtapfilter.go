package lan

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/netns"
)

// applyFilter applies f to the socket beside. It opens or closes the socket if necessary. The
// caller holds port.lock.
func (m *macvtap) applyFilter(f receiveFilter) error {
	if !f.promisc && len(f.unicast) == 0 {
		m.filter, m.asked = f, memberships{}
		return m.merged.join(nil)
	}
	q := m.merged.beside.Load()
	if q == nil {
		var err error
		if q, err = m.openBeside(); err != nil {
			return err
		}
		m.asked = memberships{fd: q.FD(), index: m.index}
		if err := m.merged.join(q); err != nil {
			return err
		}
	}
	if err := m.asked.set(f.memberships()); err != nil {
		return err
	}
	if err := attachFilter(q.FD(), f.program()); err != nil {
		return err
	}
	m.filter = f
	return nil
}

// openBeside opens a socket on the card whose filter passes nothing yet.
func (m *macvtap) openBeside() (q *packetQueue, err error) {
	err = netns.Do(m.ns, func() error {
		fd, err := packetSocket()
		if err != nil {
			return err
		}
		q = newPacketQueue(fd)
		q.offloads.Store(uint32(m.offloads))
		if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1); err != nil {
			return os.NewSyscallError("setsockopt PACKET_IGNORE_OUTGOING", err)
		}
		return m.bind(fd)
	})
	if err != nil && q != nil {
		err = errors.Join(err, q.Close())
	}
	return q, err
}

func (m *macvtap) SetUp(up bool) error {
	if err := m.setUp(m.self(), up); err != nil {
		return err
	}
	return m.change(whatUp(up), func(f *receiveFilter) { f.down = !up })
}

func (m *macvtap) SetPromisc(on bool) error {
	if err := m.filtered.SetPromisc(on); err != nil {
		return err
	}
	return m.do("setting all-multicast", m.applyAllMulti)
}

func (m *macvtap) SetAllMulti(on bool) error {
	return m.do(fmt.Sprintf("setting all-multicast to %t", on), func() error {
		m.all = on
		return m.applyAllMulti()
	})
}

// applyAllMulti makes the macvtap receive frames to all groups, or only to those in its
// list. A promiscuous host gets those to all groups. The caller holds port.lock.
func (m *macvtap) applyAllMulti() error {
	if m.all || m.filter.promisc {
		return m.handle.LinkSetAllmulticastOn(m.self())
	}
	return m.handle.LinkSetAllmulticastOff(m.self())
}

// SetMulticast implements Interface. The groups are listed by `ip maddress show`.
func (m *macvtap) SetMulticast(groups []net.HardwareAddr) error {
	if err := checkGroups(groups); err != nil {
		return err
	}
	return m.do("setting the groups", func() error {
		return netns.Do(m.ns, func() error {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return os.NewSyscallError("socket", err)
			}
			defer unix.Close(fd)
			for _, g := range groups {
				if listed(m.groups, g) {
					continue
				}
				if err := m.group(fd, unix.SIOCADDMULTI, g); err != nil {
					return fmt.Errorf("adding %v: %w", g, os.NewSyscallError("ioctl SIOCADDMULTI", err))
				}
				m.groups = append(m.groups, slices.Clone(g))
			}
			for _, g := range slices.Clone(m.groups) {
				if listed(groups, g) {
					continue
				}
				if err := m.group(fd, unix.SIOCDELMULTI, g); err != nil {
					return fmt.Errorf("removing %v: %w", g, os.NewSyscallError("ioctl SIOCDELMULTI", err))
				}
				m.groups = slices.DeleteFunc(m.groups, func(x net.HardwareAddr) bool { return slices.Equal(x, g) })
			}
			return nil
		})
	})
}

func listed(addrs []net.HardwareAddr, a net.HardwareAddr) bool {
	return slices.ContainsFunc(addrs, func(x net.HardwareAddr) bool { return slices.Equal(x, a) })
}

// group does SIOCADDMULTI or SIOCDELMULTI (netdevice(7)) with addr. The kernel counts
// references: a group stays for as long as the host, or another user of the device, has it.
func (m *macvtap) group(fd int, op uintptr, addr net.HardwareAddr) error {
	var req struct {
		name   [unix.IFNAMSIZ]byte
		family uint16 // struct sockaddr ifr_hwaddr; AF_UNSPEC
		addr   [14]byte
		_      [8]byte
	}
	copy(req.name[:unix.IFNAMSIZ-1], m.name)
	copy(req.addr[:], addr)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), op, uintptr(unsafe.Pointer(&req)))
	if errno != 0 {
		return errno
	}
	return nil
}

func (m *macvtap) SetMAC(mac net.HardwareAddr) error {
	return m.do(fmt.Sprintf("setting MAC address %v", mac), func() error {
		if err := checkMAC(mac); err != nil {
			return err
		}
		if err := m.handle.LinkSetHardwareAddr(m.self(), mac); err != nil {
			if taken(err) {
				return fmt.Errorf("%w: %w (something else on %s has that address)", ErrInUse, err, m.nic)
			}
			return err
		}
		m.mac = slices.Clone(mac)
		f := m.filter
		f.mac = m.mac
		return m.applyFilter(f)
	})
}
