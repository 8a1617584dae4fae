package lan

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/tap"
	"github.com/splitnic/splitnic/vnet"
)

// A macvtap receives for one address, and for groups. What a host wants
// besides, a packet socket on the card receives: frames to further addresses
// of the host, or to whomever. It sees what arrives at the card and not what
// goes out through it, so that nothing comes back to its sender.

// mergedQueue is a macvtap's first queue, in which the frames of the socket
// beside come as well, while there is one.
type mergedQueue struct {
	*tap.Queue
	poll   int // epoll(7) instance with both descriptors
	beside atomic.Pointer[packetQueue]
	turn   bool  // whose turn it is; the reader's own
	past   Stats // of sockets that are closed; guarded by card.mu, as is closed
	closed bool
}

var _ Queue = (*mergedQueue)(nil)

func newMergedQueue(q *tap.Queue) (*mergedQueue, error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	m := &mergedQueue{Queue: q, poll: ep}
	if err := m.watch(unix.EPOLL_CTL_ADD, q.FD()); err != nil {
		return nil, errors.Join(err, unix.Close(ep))
	}
	return m, nil
}

func (m *mergedQueue) watch(op, fd int) error {
	err := unix.EpollCtl(m.poll, op, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
	return os.NewSyscallError("epoll_ctl", err)
}

// FD implements Queue.
func (m *mergedQueue) FD() int { return m.poll }

// ReadFrame implements Queue. The two take turns.
//
// borrowed: slot, for the call.
func (m *mergedQueue) ReadFrame(slot []byte) ([]byte, error) {
	beside := m.beside.Load()
	if beside == nil {
		return m.Queue.ReadFrame(slot)
	}
	m.turn = !m.turn
	if !m.turn {
		if frame, err := m.Queue.ReadFrame(slot); !errors.Is(err, unix.EAGAIN) {
			return frame, err
		}
	}
	frame, err := beside.ReadFrame(slot)
	switch {
	case err == nil, errors.Is(err, vnet.ErrTooLong):
		return frame, err
	case m.turn:
		return m.Queue.ReadFrame(slot)
	}
	// The socket is being closed, or told of something that the macvtap, or
	// Watch, tells as well.
	return nil, errAgain
}

// ReadFrames implements Queue. The two take turns in who is read first.
//
// borrowed: ops and their slots, for the call.
func (m *mergedQueue) ReadFrames(ops []vnet.ReadOp) int {
	beside := m.beside.Load()
	if beside == nil || len(ops) == 0 {
		return m.Queue.ReadFrames(ops)
	}
	m.turn = !m.turn
	if m.turn {
		n, dry := readBeside(beside, ops)
		if !dry {
			return n
		}
		return n + m.Queue.ReadFrames(ops[n:])
	}
	n := m.Queue.ReadFrames(ops)
	if ops[n-1].Err != errAgain {
		return n
	}
	more, dry := readBeside(beside, ops[n-1:])
	n += more - 1
	if dry && n < len(ops) {
		ops[n].Frame, ops[n].Err = nil, errAgain
		n++
	}
	return n
}

// readBeside is ReadFrames of the socket beside. It returns how many of ops have
// frames, or errors about frames, and whether there is nothing more: also
// when the socket is being closed, and when it is told of something that the
// macvtap, or Watch, tells as well.
func readBeside(q *packetQueue, ops []vnet.ReadOp) (n int, dry bool) {
	n = q.ReadFrames(ops)
	if err := ops[n-1].Err; err != nil && err != vnet.ErrTooLong {
		return n - 1, true
	}
	return n, false
}

// join makes q the socket beside, nil none, and closes the one before. The
// caller holds card.mu.
func (m *mergedQueue) join(q *packetQueue) error {
	if q != nil {
		if err := m.watch(unix.EPOLL_CTL_ADD, q.FD()); err != nil {
			return errors.Join(err, q.Close())
		}
	}
	old := m.beside.Swap(q)
	if old == nil {
		return nil
	}
	old.stats()
	err := errors.Join(m.watch(unix.EPOLL_CTL_DEL, old.FD()), old.Close())
	m.past.add(old.counted())
	return err
}

// stats returns the counters of all sockets that were beside. The caller holds
// card.mu.
func (m *mergedQueue) stats() Stats {
	s := m.past
	if q := m.beside.Load(); q != nil {
		s.add(q.stats())
	}
	return s
}

// Close closes what the macvtap's own queue does not have. The caller holds
// card.mu.
func (m *mergedQueue) Close() error {
	if m.closed {
		return nil
	}
	m.closed = true
	return errors.Join(m.join(nil), m.Queue.Close(), unix.Close(m.poll))
}

// listen makes the socket beside receive what f says, and opens or closes it
// if need be. The caller holds card.mu.
func (m *macvtap) listen(f receiveFilter) error {
	if !f.promisc && len(f.unicast) == 0 {
		m.beside, m.asked = f, memberships{}
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
	m.beside = f
	return nil
}

// openBeside opens a socket on the card that receives nothing yet.
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

// SetUp implements Interface.
func (m *macvtap) SetUp(up bool) error {
	if err := m.setUp(m.self(), up); err != nil {
		return err
	}
	return m.change(whatUp(up), func(f *receiveFilter) { f.down = !up })
}

// change makes the filter of the socket beside what edit makes of it.
func (m *macvtap) change(what string, edit func(*receiveFilter)) error {
	return m.do(what, func() error {
		f := m.beside
		edit(&f)
		return m.listen(f)
	})
}

// SetPromisc implements Interface.
func (m *macvtap) SetPromisc(on bool) error {
	err := m.change(fmt.Sprintf("setting promiscuous mode to %t", on), func(f *receiveFilter) { f.promisc = on })
	if err != nil {
		return err
	}
	return m.do("setting all-multicast", m.applyAllMulti)
}

// SetUnicast implements Interface.
func (m *macvtap) SetUnicast(addrs []net.HardwareAddr) error {
	if err := checkAddrs(addrs); err != nil {
		return err
	}
	return m.change("setting further addresses", func(f *receiveFilter) { f.unicast = cloneAddrs(addrs) })
}

// SetAllMulti implements Interface.
func (m *macvtap) SetAllMulti(on bool) error {
	return m.do(fmt.Sprintf("setting all-multicast to %t", on), func() error {
		m.all = on
		return m.applyAllMulti()
	})
}

// applyAllMulti makes the macvtap receive frames to all groups, or only to
// those listed. One that is promiscuous wants all. The caller holds card.mu.
func (m *macvtap) applyAllMulti() error {
	if m.all || m.beside.promisc {
		return m.handle.LinkSetAllmulticastOn(m.self())
	}
	return m.handle.LinkSetAllmulticastOff(m.self())
}

// SetMulticast implements Interface: `ip maddress show` lists the groups.
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

// group is SIOCADDMULTI or SIOCDELMULTI (netdevice(7)). The kernel counts: a
// group stays for as long as the host, or something else, wants it.
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
