package lan

import (
	"errors"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/tap"
	"github.com/splitnic/splitnic/vnet"
)

// A macvtap receives frames for one address, and for groups. A packet socket on the card
// receives the other frames that a host wants: those to further addresses of the host, or
// all of them in promiscuous mode. The socket receives frames that arrive at the card, and
// not those that are sent through it. The exception are frames to the address of another
// macvtap of the card: the kernel shows them to the card's sockets as if they had arrived. In
// promiscuous mode a host receives them too, also if a machine behind it has sent them.

// mergedQueue is a macvtap's first queue. While there is a packet socket beside the macvtap,
// its frames arrive in this queue as well.
type mergedQueue struct {
	*tap.Queue
	poll   int // epoll(7) instance with both descriptors
	beside atomic.Pointer[packetQueue]
	turn   bool  // the socket beside is read first; only the reader uses it
	past   Stats // counters of closed sockets; guarded by port.lock, as is closed
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

func (m *mergedQueue) FD() int { return m.poll }

// ReadFrames implements Queue. The macvtap and the socket beside take turns in being read
// first.
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
	if ops[n-1].Err != unix.EAGAIN {
		return n
	}
	more, dry := readBeside(beside, ops[n-1:])
	n += more - 1
	if dry && n < len(ops) {
		ops[n].Frame, ops[n].Err = nil, unix.EAGAIN
		n++
	}
	return n
}

// readBeside reads frames from q, the socket beside. It returns how many of ops have a
// frame, or the error of one frame, and whether no more frames can be read. The latter is
// also the case when the socket is being closed, or has an error that the macvtap or Watch
// reports as well.
func readBeside(q *packetQueue, ops []vnet.ReadOp) (n int, dry bool) {
	n = q.ReadFrames(ops)
	if err := ops[n-1].Err; err != nil && err != vnet.ErrTooLong {
		return n - 1, true
	}
	return n, false
}

// join makes q the socket beside, or removes it if q is nil, and closes the previous one.
// The caller holds port.lock.
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

// stats returns the counters of the present socket beside and of all earlier ones. The
// caller holds port.lock.
func (m *mergedQueue) stats() Stats {
	s := m.past
	if q := m.beside.Load(); q != nil {
		s.add(q.stats())
	}
	return s
}

// Close closes the socket beside, the macvtap's queue and the epoll descriptor. The caller
// holds port.lock.
func (m *mergedQueue) Close() error {
	if m.closed {
		return nil
	}
	m.closed = true
	return errors.Join(m.join(nil), m.Queue.Close(), unix.Close(m.poll))
}
