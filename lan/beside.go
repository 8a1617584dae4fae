package lan

import (
	"errors"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

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
