package vhostuser

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/eventfd"
)

// waker is the descriptor on which a sender or a receiver sleeps: an epoll(7) instance with the kicks
// of rings and its own eventfd. It is edge-triggered (EPOLLET), so that no descriptor of the front end
// is read, which the front end could make block.
type waker struct {
	ep, event int
	kicks     []int
	got       [8]unix.EpollEvent // buffer of clear; on its stack it would be allocated
}

func newWaker() (*waker, error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	event, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return nil, errors.Join(os.NewSyscallError("eventfd", err), unix.Close(ep))
	}
	w := &waker{ep: ep, event: event}
	if err := w.add(event); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

func (w *waker) add(fd int) error {
	ev := unix.EpollEvent{Events: unix.EPOLLIN | 1<<31, Fd: int32(fd)} // unix.EPOLLET is negative on some machines
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(w.ep, unix.EPOLL_CTL_ADD, fd, &ev))
}

// forget removes all kicks from the waker.
func (w *waker) forget() {
	for _, fd := range w.kicks {
		_ = unix.EpollCtl(w.ep, unix.EPOLL_CTL_DEL, fd, nil) // fails only if it is not there
	}
	w.kicks = w.kicks[:0]
}

// hear adds the kick of a ring to the waker.
func (w *waker) hear(kick int) error {
	err := w.add(kick)
	if err == nil {
		w.kicks = append(w.kicks, kick)
	}
	return err
}

// raise wakes the sleeper. The counter is never read, and large enough not to overflow.
func (w *waker) raise() { _ = eventfd.Raise(w.event) }

// clear discards pending events. The caller then checks the rings.
func (w *waker) clear() {
	for {
		n, err := unix.EpollWait(w.ep, w.got[:], 0)
		if err != unix.EINTR && n < len(w.got) {
			return
		}
	}
}

func (w *waker) close() error { return errors.Join(unix.Close(w.event), unix.Close(w.ep)) }
