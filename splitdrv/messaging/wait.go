package messaging

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// event is a flag that workers can wait for: an eventfd(2).
type event struct {
	fd  int
	got [8]byte // of clear: one on its stack would be allocated
}

func newEvent() (*event, error) {
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("eventfd", err)
	}
	return &event{fd: fd}, nil
}

var one = [8]byte{1}

// set raises the flag. The counter cannot overflow in practice, and a full one
// is raised all the same, so that errors do not matter.
func (e *event) set() { _, _ = unix.Write(e.fd, one[:]) }

// clear lowers the flag. One goroutine only.
func (e *event) clear() { _, _ = unix.Read(e.fd, e.got[:]) }

func (e *event) close() error { return unix.Close(e.fd) }

// waiter is a set of descriptors that one worker waits for: an epoll(7)
// instance, itself waited for in Go's poller. So a worker that sleeps holds
// neither a thread nor a P. One that sleeps in poll(2) holds both, and keeps
// the runtime's monitor awake, which looks after Ps in system calls every 20
// microseconds.
type waiter struct {
	file   *os.File
	raw    syscall.RawConn
	events [4]unix.EpollEvent
	n      int
	err    error
	look   func(fd uintptr) bool // made once: a closure for each sleep would be allocated
}

// interest is a descriptor and what to wait for there: EPOLLIN or EPOLLOUT.
type interest struct {
	fd     int
	events uint32
}

// newWaiter makes a waiter for the descriptors, which it does not own.
func newWaiter(interests ...interest) (*waiter, error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	w := &waiter{}
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
	w.look = func(fd uintptr) bool {
		w.n, w.err = unix.EpollWait(int(fd), w.events[:], 0)
		return w.n > 0 || (w.err != nil && w.err != unix.EINTR)
	}
	return w, nil
}

// wait sleeps until one of the descriptors is ready.
func (w *waiter) wait() error {
	if err := w.raw.Read(w.look); err != nil {
		return fmt.Errorf("wait: %w", err)
	}
	if w.err != nil {
		return os.NewSyscallError("epoll_wait", w.err)
	}
	return nil
}

// ready returns the events that the last wait found at fd, 0 for none.
func (w *waiter) ready(fd int) uint32 {
	for i := range w.events[:w.n] {
		if int(w.events[i].Fd) == fd {
			return w.events[i].Events
		}
	}
	return 0
}

func (w *waiter) close() error { return w.file.Close() }
