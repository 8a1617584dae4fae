// Package porttest provides a port without a netdevice: a pair of sockets that preserve the
// boundaries of frames. One end is the port of a data channel, the other represents the wire behind
// the port.
package porttest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/vnet"
)

// Port is a Single over a SOCK_SEQPACKET socket. It may be closed while it is used: a test closes it
// at its end, before its endpoint has stopped. The kernel may then use the number of its descriptor
// again.
type Port struct {
	fd int

	using  sync.RWMutex
	closed bool
}

// Wire is the other end of a Port, on which tests read and write frames. Its methods block. One
// goroutine may read while another one writes.
type Wire struct{ f *os.File }

// New makes a port and its wire. Both are closed when the test ends. buffer is the number of bytes of
// frames that each direction holds before its writer has to wait.
func New(t testing.TB, buffer int) (*Port, *Wire) {
	t.Helper()
	p, w, err := Open(buffer)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Close()
		w.Close()
	})
	return p, w
}

// Open is New for goroutines that run longer than the first cleanup of a test. They close the port
// and the wire.
func Open(buffer int) (*Port, *Wire, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	p := &Port{fd: fds[0]}
	w := &Wire{f: os.NewFile(uintptr(fds[1]), "wire")}
	for _, fd := range fds {
		// Root may exceed net.core.wmem_max.
		if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, buffer) != nil {
			if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, buffer); err != nil {
				return nil, nil, errors.Join(os.NewSyscallError("setsockopt", err), p.Close(), w.Close())
			}
		}
	}
	return p, w, nil
}

// FD implements Single.
func (p *Port) FD() int { return p.fd }

// ReadFrame implements Single.
func (p *Port) ReadFrame(slot []byte) ([]byte, error) {
	p.using.RLock()
	defer p.using.RUnlock()
	if p.closed {
		return nil, os.ErrClosed
	}
	n, err := unix.Read(p.fd, slot)
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, io.EOF // the wire is closed
	}
	if n > vnet.MaxFrame || n == len(slot) { // or it may have been cut off
		return nil, vnet.ErrTooLong
	}
	return slot[:n], nil
}

// WriteFrame implements Single.
func (p *Port) WriteFrame(frame []byte) error {
	p.using.RLock()
	defer p.using.RUnlock()
	if p.closed {
		return os.ErrClosed
	}
	_, err := unix.Write(p.fd, frame)
	return err
}

// Close closes the port's socket.
func (p *Port) Close() error {
	p.using.Lock()
	defer p.using.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	return os.NewSyscallError("close", unix.Close(p.fd))
}

// Send writes one frame, waiting for room until ctx is done.
func (w *Wire) Send(ctx context.Context, frame []byte) error {
	stop := w.deadline(ctx, w.f.SetWriteDeadline)
	defer stop()
	_, err := w.f.Write(frame)
	return cause(ctx, err)
}

// Receive reads one frame into buf, waiting for one until ctx is done.
func (w *Wire) Receive(ctx context.Context, buf []byte) ([]byte, error) {
	stop := w.deadline(ctx, w.f.SetReadDeadline)
	defer stop()
	n, err := w.f.Read(buf)
	return buf[:n], cause(ctx, err)
}

// Close closes the wire.
func (w *Wire) Close() error { return w.f.Close() }

// deadline has reads or writes end when ctx is done, until stop is called.
func (w *Wire) deadline(ctx context.Context, set func(time.Time) error) (stop func()) {
	_ = set(time.Time{})
	expired := make(chan struct{})
	wait := context.AfterFunc(ctx, func() {
		_ = set(time.Unix(1, 0))
		close(expired)
	})
	return func() {
		if !wait() {
			<-expired // so that it does not end the next call
		}
	}
}

func cause(ctx context.Context, err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("wire: %w", context.Cause(ctx))
	}
	return err
}

// Single is a port that moves one frame at a time. Its errors are those of
// messaging.Port.
type Single interface {
	FD() int
	ReadFrame(slot []byte) ([]byte, error)
	WriteFrame(frame []byte) error
}

// Batched makes a messaging.Port of a Single.
type Batched struct{ Single }

// ReadFrames implements messaging.Port.
func (p Batched) ReadFrames(ops []vnet.ReadOp) int {
	for i := range ops {
		ops[i].Frame, ops[i].Err = p.ReadFrame(ops[i].Slot)
		if ops[i].Err != nil && ops[i].Err != vnet.ErrTooLong {
			return i + 1
		}
	}
	return len(ops)
}

// WriteFrames implements messaging.Port.
func (p Batched) WriteFrames(ops []vnet.WriteOp) int {
	var buf []byte
	for i := range ops {
		frame := ops[i].Head
		if len(ops[i].Rest) > 0 {
			buf = append(append(buf[:0], frame...), ops[i].Rest...)
			frame = buf
		}
		if ops[i].Err = p.WriteFrame(frame); ops[i].Err == unix.EAGAIN {
			return i
		}
	}
	return len(ops)
}
