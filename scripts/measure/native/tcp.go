package native

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// chunk is how many bytes the sender of a stream writes, and the receiver reads, in one call, as
// in iperf3.
const chunk = 128 << 10

// streams are TCP connections that send as much as they can.
type streams struct {
	fds      []int
	wg       sync.WaitGroup
	stopping atomic.Bool
	mu       sync.Mutex
	errs     []error
	received atomic.Uint64 // bytes
}

// newStreams starts n streams from one namespace to an address in another.
func newStreams(from, to, addr string, n int) (*streams, error) {
	s := &streams{}
	for range n {
		out, in, err := connect(from, to, addr)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("opening a stream to %s: %w", addr, err), s.stop())
		}
		s.fds = append(s.fds, out, in)
		s.run(func() error { return s.send(out) })
		s.run(func() error { return s.receive(in) })
	}
	return s, nil
}

// run runs one end of a stream on its own thread.
func (s *streams) run(end func() error) {
	s.wg.Go(func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := end(); err != nil && !s.stopping.Load() {
			s.mu.Lock()
			s.errs = append(s.errs, err)
			s.mu.Unlock()
		}
	})
}

func (s *streams) send(fd int) error {
	buf := make([]byte, chunk)
	write := func() (int, error) { return unix.Write(fd, buf) }
	for !s.stopping.Load() {
		if _, err := whole(write); err != nil {
			return fmt.Errorf("sending: %w", err)
		}
	}
	return nil
}

func (s *streams) receive(fd int) error {
	buf := make([]byte, chunk)
	read := func() (int, error) { return unix.Read(fd, buf) }
	for {
		n, err := whole(read)
		switch {
		case err != nil:
			return fmt.Errorf("receiving: %w", err)
		case n == 0:
			return io.ErrUnexpectedEOF
		}
		s.received.Add(uint64(n))
	}
}

func (s *streams) count() uint64 { return s.received.Load() }

// stop ends the streams, and returns the errors that occurred before.
func (s *streams) stop() error {
	s.stopping.Store(true)
	for _, fd := range s.fds {
		_ = unix.Shutdown(fd, unix.SHUT_RDWR) // the stream may have failed already
	}
	s.wg.Wait()
	for _, fd := range s.fds {
		s.errs = append(s.errs, unix.Close(fd))
	}
	return errors.Join(s.errs...)
}

// connect opens a TCP connection, and returns both ends, in blocking mode.
func connect(from, to, addr string) (out, in int, err error) {
	ln, err := socket(to, unix.SOCK_STREAM)
	if err != nil {
		return -1, -1, err
	}
	defer unix.Close(ln)
	if err := unix.Bind(ln, sockaddr(addr, 0)); err != nil {
		return -1, -1, os.NewSyscallError("bind", err)
	}
	if err := unix.Listen(ln, 1); err != nil {
		return -1, -1, os.NewSyscallError("listen", err)
	}
	name, err := unix.Getsockname(ln)
	if err != nil {
		return -1, -1, os.NewSyscallError("getsockname", err)
	}
	if out, err = socket(from, unix.SOCK_STREAM); err != nil {
		return -1, -1, err
	}
	if err := unix.Connect(out, name); err != nil && !errors.Is(err, unix.EINTR) {
		return -1, -1, errors.Join(os.NewSyscallError("connect", err), unix.Close(out))
	}
	// A connect(2) that was interrupted makes the connection nevertheless.
	in, err = whole(func() (fd int, err error) {
		fd, _, err = unix.Accept4(ln, unix.SOCK_CLOEXEC)
		return fd, err
	})
	if err != nil {
		return -1, -1, errors.Join(os.NewSyscallError("accept", err), unix.Close(out))
	}
	if err := patient(in); err != nil {
		return -1, -1, errors.Join(err, unix.Close(in), unix.Close(out))
	}
	return out, in, nil
}
