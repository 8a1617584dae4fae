package messaging

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// event is a flag that threads can sleep on with poll(2): an eventfd(2).
type event struct{ fd int }

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

// clear lowers the flag.
func (e *event) clear() {
	var b [8]byte
	_, _ = unix.Read(e.fd, b[:])
}

func (e *event) close() error { return unix.Close(e.fd) }

// sleep blocks the thread until one of fds is ready or milliseconds have
// passed (-1: for ever).
func sleep(fds []unix.PollFd, milliseconds int) error {
	for {
		_, err := unix.Poll(fds, milliseconds)
		switch err {
		case nil:
			return nil
		case unix.EINTR: // Go's scheduler preempts threads by a signal
		default:
			return fmt.Errorf("wait: %w", os.NewSyscallError("poll", err))
		}
	}
}

// ready reports whether poll(2) found something at fd: readable, writable, in
// error or hung up.
func ready(fd *unix.PollFd) bool { return fd.Revents != 0 }
