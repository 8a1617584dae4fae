package epoll

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Set is a set of descriptors that one goroutine waits for. It is an epoll(7) instance, which
// is in Go's poller. A goroutine that sleeps therefore holds neither a thread nor a P. A
// goroutine that sleeps in poll(2) holds both, and keeps the runtime's monitor awake, which
// checks Ps in system calls every 20 microseconds.
type Set struct {
	ep   int
	file *os.File
	raw  syscall.RawConn
	// Made once: a closure for each wait would be allocated.
	look func(uintptr) bool
	call func(uintptr) bool

	work   func() (bool, error) // argument of Run
	err    error                // last error of work
	ready  [1]unix.EpollEvent
	change unix.EpollEvent // argument of Watch
	looked bool            // this wait has polled the epoll instance
}

// Interest is a descriptor and the event to wait for.
type Interest struct {
	fd     int
	events uint32
}

// Readable returns the Interest for waiting until fd can be read.
func Readable(fd int) Interest { return Interest{fd, unix.EPOLLIN} }

// Writable returns the Interest for waiting until fd can be written.
func Writable(fd int) Interest { return Interest{fd, unix.EPOLLOUT} }

// NewSet makes a Set of descriptors, which it does not own.
func NewSet(interests ...Interest) (*Set, error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	for _, i := range interests {
		ev := unix.EpollEvent{Events: i.events, Fd: int32(i.fd)}
		if err := unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, i.fd, &ev); err != nil {
			return nil, errors.Join(fmt.Errorf("wait for descriptor %d: %w", i.fd, os.NewSyscallError("epoll_ctl", err)),
				unix.Close(ep))
		}
	}
	// Only a non-blocking descriptor goes into Go's poller.
	if err := unix.SetNonblock(ep, true); err != nil {
		return nil, errors.Join(os.NewSyscallError("fcntl", err), unix.Close(ep))
	}
	s := &Set{ep: ep, file: os.NewFile(uintptr(ep), "epoll")}
	if s.raw, err = s.file.SyscallConn(); err != nil {
		return nil, errors.Join(err, s.file.Close())
	}
	s.look, s.call = s.isReady, func(uintptr) (ended bool) {
		ended, s.err = s.work()
		return ended
	}
	return s, nil
}

// Watch makes the set wait, or no longer wait, for a descriptor that it was made with. Only the goroutine
// that waits may call it, also within Run: work then has to try the descriptor once more, because Run
// may not notice an event from before. (The kernel tells Go's poller of it only if the epoll instance
// does not have it in its list, from when the set last waited for the descriptor.) An error condition
// of the descriptor, such as its device being deleted, ends waits in any case.
func (s *Set) Watch(i Interest, on bool) error {
	s.change = unix.EpollEvent{Fd: int32(i.fd)}
	if on {
		s.change.Events = i.events
	}
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(s.ep, unix.EPOLL_CTL_MOD, i.fd, &s.change))
}

// Run calls work, and calls it again whenever a descriptor has had an event since the last call,
// until work returns true. It returns the error of that last call. Between the calls it sleeps.
// Run does not report which descriptor has had an event: work has to try each of them.
func (s *Set) Run(work func() (ended bool, err error)) error {
	s.work, s.err = work, nil
	if err := s.raw.Read(s.call); err != nil && s.err == nil {
		return fmt.Errorf("wait: %w", err)
	}
	return s.err
}

// isReady reports whether a descriptor is ready. Go's poller reports changes only, and forgets
// the changes before the wait. So isReady polls the epoll instance at the beginning of a wait,
// and takes a later wake-up as a sign that a descriptor is ready. The poll has another use: a
// full TAP device or macvtap reports later that it has room only after a poll (tun_chr_poll and
// tap_poll set SOCKWQ_ASYNC_NOSPACE).
func (s *Set) isReady(fd uintptr) bool {
	if s.looked {
		return true
	}
	s.looked = true
	n, _ := unix.EpollWait(int(fd), s.ready[:], 0)
	return n != 0 // the caller meets an error again when it checks what is ready
}

// Wait sleeps until a descriptor is ready. Occasionally it returns although none is ready.
func (s *Set) Wait() error {
	s.looked = false
	if err := s.raw.Read(s.look); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("wait: %w", err)
	}
	return nil
}

// WaitFor is Wait, for d at most.
func (s *Set) WaitFor(d time.Duration) error {
	if err := s.file.SetReadDeadline(time.Now().Add(d)); err != nil {
		return fmt.Errorf("wait for %v: %w", d, err)
	}
	err := s.Wait()
	if end := s.file.SetReadDeadline(time.Time{}); err == nil && end != nil {
		err = fmt.Errorf("wait for %v: %w", d, end)
	}
	return err
}

// Close closes the epoll instance. No goroutine may be waiting.
func (s *Set) Close() error { return s.file.Close() }
