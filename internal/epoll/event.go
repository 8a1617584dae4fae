// Package epoll lets a goroutine sleep until one of several descriptors is
// ready.
package epoll

import (
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/eventfd"
)

// Event is a flag that a goroutine can wait for: an eventfd(2).
type Event struct {
	fd     int
	raised atomic.Bool // the flag is raised, or about to be
	got    uint64      // buffer of Clear: a local one would be allocated
}

// NewEvent makes an Event that is not raised.
func NewEvent() (*Event, error) {
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("eventfd", err)
	}
	return &Event{fd: fd}, nil
}

// FD returns the descriptor, which is readable while the flag is raised.
func (e *Event) FD() int { return e.fd }

// Set raises the flag. Any goroutine may call it. It never waits, and makes no system call if
// the flag is raised already.
func (e *Event) Set() {
	if !e.raised.Swap(true) {
		_ = eventfd.Raise(e.fd) // the counter never overflows
	}
}

// Clear lowers the flag. Only the goroutine that waits may call it, before it checks what the
// flag was raised for, so that it misses nothing. A flag that is just being raised stays raised:
// there is one write for each read, and no write is left over that would keep the descriptor
// readable.
func (e *Event) Clear() {
	if !e.raised.Load() {
		return
	}
	if eventfd.Lower(e.fd, &e.got) == nil {
		e.raised.Store(false)
	}
}

// Close closes the descriptor.
func (e *Event) Close() error { return unix.Close(e.fd) }
