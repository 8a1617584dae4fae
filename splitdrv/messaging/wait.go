package messaging

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/fabric"
)

// event is a flag that workers can wait for: an eventfd(2).
type event struct {
	fd     int
	raised atomic.Bool // or about to be; a flag that is up is not raised again
	got    [8]byte     // of clear: one on its stack would be allocated
}

func newEvent() (*event, error) {
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("eventfd", err)
	}
	return &event{fd: fd}, nil
}

var one = [8]byte{1}

// set raises the flag. Errors do not matter: the counter never overflows.
func (e *event) set() {
	if !e.raised.Swap(true) {
		_, _ = unix.Write(e.fd, one[:])
	}
}

// clear lowers the flag. For the one who waits, before each look at what the
// flag is raised for: a flag that stays up is not raised again, and one that is
// raised while this runs may be lowered at once. It reports whether it was up.
func (e *event) clear() bool {
	if !e.raised.Load() {
		return false
	}
	_, _ = unix.Read(e.fd, e.got[:])
	e.raised.Store(false)
	return true
}

func (e *event) close() error { return unix.Close(e.fd) }

// notice is a completion queue whose worker asks for an event before it sleeps.
// One that has woken has to come back here before it sleeps again: the event
// may be that of a completion that it had found before, and no other one comes
// until it is asked for.
type notice struct {
	cq        fabric.CQ
	solicited bool
	armed     bool // once at least
}

// arm asks for an event, after it has read the one that was asked for before,
// if that has come. If not it may still be on its way, unseen, when the worker
// begins to wait; so another one is asked for in any case. There are never more
// than two unread, because one is read for each that is asked for.
func (n *notice) arm() error {
	if n.armed {
		if _, err := n.cq.ReadEvent(); err != nil {
			return err
		}
	}
	n.armed = true
	return n.cq.Arm(n.solicited)
}

// waiter is a set of descriptors that one worker waits for: an epoll(7)
// instance, itself waited for in Go's poller. So a worker that sleeps holds
// neither a thread nor a P. One that sleeps in poll(2) holds both, and keeps
// the runtime's monitor awake, which looks after Ps in system calls every 20
// microseconds.
//
// It never asks which descriptor it was. The worker knows where to look, and a
// look is a try: the frame that has come has been read then, where epoll_wait
// would only have said that it can be.
type waiter struct {
	file *os.File
	raw  syscall.RawConn
	look func(uintptr) bool // made once: a closure for each sleep would be allocated
}

// interest is a descriptor and what to wait for there: EPOLLIN or EPOLLOUT.
type interest struct {
	fd     int
	events uint32
}

// newWaiter makes a waiter for the descriptors, which it does not own. awake
// reports whether the worker need not sleep; it is called at least once after
// anything has happened to a descriptor, and never waits.
func newWaiter(awake func() bool, interests ...interest) (*waiter, error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	w := &waiter{look: func(uintptr) bool { return awake() }}
	if slices.ContainsFunc(interests, func(i interest) bool { return i.events&unix.EPOLLOUT != 0 }) {
		// A device that is full tells that it has room only to those who have
		// asked whether it has, by poll or epoll_wait (tun_chr_poll and tap_poll
		// set SOCKWQ_ASYNC_NOSPACE, without which nobody is woken).
		var ready [4]unix.EpollEvent
		w.look = func(fd uintptr) bool {
			for !awake() {
				// Until it says that it has no room: who is told that it has, and
				// fills it, has to ask again.
				if n, _ := unix.EpollWait(int(fd), ready[:], 0); n <= 0 {
					return false
				}
			}
			return true
		}
	}
	for _, i := range interests {
		ev := unix.EpollEvent{Events: i.events, Fd: int32(i.fd)}
		if err := unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, i.fd, &ev); err != nil {
			return nil, errors.Join(fmt.Errorf("wait for descriptor %d: %w", i.fd, os.NewSyscallError("epoll_ctl", err)), unix.Close(ep))
		}
	}
	// Only a non-blocking descriptor goes into Go's poller.
	if err := unix.SetNonblock(ep, true); err != nil {
		return nil, errors.Join(os.NewSyscallError("fcntl", err), unix.Close(ep))
	}
	w.file = os.NewFile(uintptr(ep), "epoll")
	if w.raw, err = w.file.SyscallConn(); err != nil {
		return nil, errors.Join(err, w.file.Close())
	}
	return w, nil
}

// wait sleeps until awake returns true.
func (w *waiter) wait() error {
	if err := w.raw.Read(w.look); err != nil {
		return fmt.Errorf("wait: %w", err)
	}
	return nil
}

// waitFor is wait, for d at most.
func (w *waiter) waitFor(d time.Duration) error {
	if err := w.file.SetReadDeadline(time.Now().Add(d)); err != nil {
		return fmt.Errorf("wait for %v: %w", d, err)
	}
	err := w.raw.Read(w.look)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("wait for %v: %w", d, err)
	}
	if err := w.file.SetReadDeadline(time.Time{}); err != nil {
		return fmt.Errorf("wait for %v: %w", d, err)
	}
	return nil
}

func (w *waiter) close() error { return w.file.Close() }
