package verbs

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// pollFD waits in Go's poller for events on a non-blocking file descriptor that libibverbs
// owns. The poller uses a duplicate of the descriptor, so that libibverbs and Go each close
// their own descriptor.
//
// Waiting repeatedly with contexts that share one Done channel does not allocate: the
// registration with the context is kept until a wait with another Done channel.
type pollFD struct {
	fd   int
	turn chan struct{} // holds a token while a goroutine waits

	// Used only by the waiting goroutine, which holds turn.
	ready func(uintptr) bool
	errno syscall.Errno

	mu     sync.Mutex
	closed bool
	file   *os.File // the duplicate, made by the first wait
	conn   syscall.RawConn
	done   <-chan struct{} // Done channel of the registered context, which ends waits
	stop   func() bool
	gen    uint64
}

// newPollFD returns a pollFD for fd. take consumes one event and returns 0, or EAGAIN if there
// is none. It must not block.
func newPollFD(fd int, take func() syscall.Errno) *pollFD {
	p := &pollFD{fd: fd, turn: make(chan struct{}, 1)}
	p.ready = func(uintptr) bool {
		p.errno = take()
		return p.errno != syscall.EAGAIN
	}
	return p
}

// wait consumes one event. It sleeps until there is one, ctx is done or the pollFD is closed.
// Concurrent calls are served one after the other.
func (p *pollFD) wait(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-p.turn }()
	conn, err := p.watch(ctx)
	if err != nil {
		return err
	}
	err = conn.Read(p.ready)
	switch {
	case err == nil && p.errno == 0:
		return nil
	case err == nil:
		return p.errno
	case errors.Is(err, os.ErrDeadlineExceeded):
		return ctx.Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return net.ErrClosed
	}
	return err
}

// watch registers with ctx, so that its end interrupts the following wait.
func (p *pollFD) watch(ctx context.Context) (syscall.RawConn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, net.ErrClosed
	}
	if p.file == nil {
		fd, err := unix.FcntlInt(uintptr(p.fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		p.file = os.NewFile(uintptr(fd), "verbs events")
		if p.conn, err = p.file.SyscallConn(); err != nil {
			return nil, err
		}
	}
	done := ctx.Done()
	if done == p.done {
		return p.conn, nil
	}
	if p.stop != nil {
		p.stop()
		p.stop = nil
	}
	p.gen++
	p.done = done
	if err := p.file.SetReadDeadline(time.Time{}); err != nil {
		return nil, err
	}
	if done != nil {
		gen := p.gen
		p.stop = context.AfterFunc(ctx, func() { p.interrupt(gen) })
	}
	return p.conn, nil
}

// interrupt ends the waits of registration gen, if it is still the current registration.
func (p *pollFD) interrupt(gen uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gen == gen && !p.closed {
		// The deadline is in the past. An error would mean that the descriptor is not in the
		// poller, which wait reports.
		_ = p.file.SetReadDeadline(time.Unix(1, 0))
	}
}

// close makes waiting calls return net.ErrClosed. It returns after they have stopped using
// the descriptor fd, and leaves fd open.
func (p *pollFD) close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	if p.stop != nil {
		p.stop()
		p.stop = nil
	}
	f := p.file
	p.mu.Unlock()
	if f == nil {
		return nil
	}
	return f.Close()
}
