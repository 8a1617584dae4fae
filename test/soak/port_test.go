package soak

import (
	"io"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/vnet"
)

// never is a number that is not the number of any frame.
const never = ^uint64(0)

// port is one queue of a simulated netdevice: it generates the frames of one stream and checks
// those of another. Now and then it has no frame, or is full, for a moment. One goroutine uses it
// for reading, and one for writing.
type port struct {
	fd    int // an eventfd: readable while there is something to send
	close sync.Once

	// Used by the reader.
	out      stream
	frames   uint64 // number of frames to send
	sent     uint64
	paused   uint64 // number of the last frame that was delayed
	vanishes uint64 // number of the frame instead of which the netdevice disappears, or never

	// Used by the writer.
	in      stream
	got     tally
	refused uint64 // number of the last frame that was refused
	scratch []byte
	joined  []byte // buffer for a frame that arrives in two parts

	expect   uint64        // number of frames after which all is closed
	all      chan struct{} // closed when the last frame has arrived
	trigger  uint64        // number of the frame at which reached is closed
	reached  chan struct{}
	received atomic.Uint64 // got.frames, for other goroutines
}

func newPort(out, in stream, frames, expect uint64) (*port, error) {
	fd, err := unix.Eventfd(1, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	p := &port{
		fd: fd, out: out, in: in, frames: frames, paused: never, vanishes: never, refused: never,
		expect: expect, trigger: never, all: make(chan struct{}), reached: make(chan struct{}),
		scratch: make([]byte, vnet.MaxFrame),
	}
	if expect == 0 {
		close(p.all)
	}
	return p, nil
}

// FD implements messaging.Port.
func (p *port) FD() int { return p.fd }

// ReadFrame is ReadFrames for one frame.
func (p *port) ReadFrame(slot []byte) ([]byte, error) {
	n := p.sent
	switch {
	case n == p.vanishes:
		return nil, io.EOF
	case n == p.frames:
		var b [8]byte
		_, _ = unix.Read(p.fd, b[:]) // fails if it was not readable
		return nil, unix.EAGAIN
	case mix(p.out.key, ^n)%61 == 0 && p.paused != n:
		p.paused = n
		return nil, p.wake()
	}
	p.sent++
	return p.out.fill(slot, n), nil
}

// wake reports that there is no frame, and signals the next one at once: a goroutine that waits is
// woken by new events only, not by the present state.
func (p *port) wake() error {
	if _, err := unix.Write(p.fd, []byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil {
		return err
	}
	return unix.EAGAIN
}

// WriteFrame is WriteFrames for one frame.
func (p *port) WriteFrame(f []byte) error {
	n := p.got.frames
	if mix(p.in.key, ^n)%67 == 0 && p.refused != n {
		p.refused = n
		return unix.EAGAIN
	}
	p.got.take(&p.in, f, p.scratch)
	p.received.Store(n + 1)
	if n+1 == p.expect {
		close(p.all)
	}
	if n == p.trigger {
		close(p.reached)
	}
	return nil
}

// Close closes the descriptor. The session that uses the port must have ended.
func (p *port) Close() error {
	var err error
	p.close.Do(func() { err = unix.Close(p.fd) })
	return err
}

var _ messaging.Port = (*port)(nil)

// ReadFrames implements messaging.Port.
func (p *port) ReadFrames(ops []vnet.ReadOp) int {
	for i := range ops {
		ops[i].Frame, ops[i].Err = p.ReadFrame(ops[i].Slot)
		if ops[i].Err != nil {
			return i + 1
		}
	}
	return len(ops)
}

// WriteFrames implements messaging.Port.
func (p *port) WriteFrames(ops []vnet.WriteOp) int {
	for i := range ops {
		f := ops[i].Head
		if len(ops[i].Rest) > 0 {
			p.joined = append(append(p.joined[:0], f...), ops[i].Rest...)
			f = p.joined
		}
		if ops[i].Err = p.WriteFrame(f); ops[i].Err != nil {
			return i
		}
	}
	return len(ops)
}
