package testenv

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Readable reports whether poll(2) says that fd can be read, within wait. poll ends early
// for a signal even if it does not wait, and the Go runtime sends signals to its threads.
// Any goroutine may call it.
func Readable(t testing.TB, fd int, wait time.Duration) bool {
	t.Helper()
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for end := time.Now().Add(wait); ; {
		n, err := unix.Poll(fds, int(max(time.Until(end), 0).Milliseconds()))
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			t.Errorf("poll(2) for descriptor %d: %v", fd, err)
			return false
		default:
			return n == 1 && fds[0].Revents&unix.POLLIN != 0
		}
	}
}
