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

// pollFD waits in Go's poller for events on a non-blocking file descriptor
// that libibverbs owns. The poller gets a duplicate of its own, so that each
// descriptor is closed by whoever opened it.
//
// Waiting repeatedly with contexts that share one Done channel allocates
// nothing: the registration with that context is kept until another comes.
type pollFD struct {
	fd   int
	turn chan struct{} // holds a token while somebody waits

	// Of the waiter, under turn.
	ready func(uintptr) bool
	errno syscall.Errno

	mu     sync.Mutex
	closed bool
	file   *os.File // the duplicate, made by the first wait
	conn   syscall.RawConn
	done   <-chan struct{} // of the context that ends waits
	stop   func() bool
	gen    uint64
}

// newPollFD prepares waiting on fd. take consumes one event and answers 0, or
// EAGAIN when there is none; it never blocks.
func newPollFD(fd int, take func() syscall.Errno) *pollFD {
	p := &pollFD{fd: fd, turn: make(chan struct{}, 1)}
	p.ready = func(uintptr) bool {
		p.errno = take()
		return p.errno != syscall.EAGAIN
	}
	return p
}

// wait consumes one event, sleeping until there is one, ctx is done or the
// pollFD is closed. Concurrent calls take turns.
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

// watch sees to it that the end of ctx interrupts the wait that follows.
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

// interrupt ends the waits of registration gen, if that is still the current one.
func (p *pollFD) interrupt(gen uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gen == gen && !p.closed {
		// A deadline in the past; an error would mean that the poller does
		// not know the descriptor, which wait reports.
		_ = p.file.SetReadDeadline(time.Unix(1, 0))
	}
}

// close makes waiters return net.ErrClosed and comes back after they have
// stopped using the descriptor, which it leaves open.
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
