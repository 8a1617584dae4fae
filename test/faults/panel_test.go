package faults

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// panel connects the cables of two machines and forwards frames between them. It is in the test
// process and not in a machine, so that either machine may die and come back with another cable.
// Like a switch it queues a few frames for a machine that does not take them, and drops further
// frames.
type panel struct {
	ports   [2]*jack
	workers sync.WaitGroup
}

// jack is the port of the panel for one machine's cable.
type jack struct {
	l     net.Listener
	peer  *jack
	queue chan []byte // frames for this machine, in the format of the socket

	mu     sync.Mutex
	conn   net.Conn
	closed bool

	frames, dropped atomic.Int64 // numbers of frames for this machine
}

// panelQueue is the number of frames that the panel queues for a machine.
const panelQueue = 512

// maxFrame is the most bytes of a frame. qemu sends no larger ones.
const maxFrame = 128 << 10

// newPanel makes a panel that listens on a socket in dir for each machine.
func newPanel(dir string) (*panel, error) {
	p := &panel{}
	for i := range p.ports {
		l, err := net.Listen("unix", filepath.Join(dir, fmt.Sprintf("cable%d", i)))
		if err != nil {
			return nil, errors.Join(err, p.close())
		}
		p.ports[i] = &jack{l: l, queue: make(chan []byte, panelQueue)}
	}
	for i, j := range p.ports {
		j.peer = p.ports[1-i]
		p.workers.Go(j.serve)
	}
	return p, nil
}

// path returns the path of the socket of port i.
func (p *panel) path(i int) string { return p.ports[i].l.Addr().String() }

// close closes the panel and waits for its goroutines.
func (p *panel) close() error {
	var errs []error
	for _, j := range p.ports {
		if j == nil {
			continue
		}
		errs = append(errs, j.l.Close())
		j.mu.Lock()
		j.closed = true
		if j.conn != nil {
			j.conn.Close()
		}
		j.mu.Unlock()
	}
	p.workers.Wait()
	return errors.Join(errs...)
}

// serve accepts connections, and serves one machine after the other until the panel is closed.
func (j *jack) serve() {
	for {
		c, err := j.l.Accept()
		if err != nil {
			return // the panel was closed
		}
		j.mu.Lock()
		if j.closed {
			j.mu.Unlock()
			c.Close()
			return
		}
		j.conn = c
		j.mu.Unlock()
		gone := make(chan struct{})
		var writer sync.WaitGroup
		writer.Go(func() { j.write(c, gone) })
		j.read(c)
		close(gone)
		c.Close()
		writer.Wait()
	}
}

// read reads frames from the machine, and queues them for the peer, until the machine is gone.
func (j *jack) read(c net.Conn) {
	r := bufio.NewReaderSize(c, 256<<10)
	for {
		head, err := r.Peek(4)
		if err != nil {
			return
		}
		n := binary.BigEndian.Uint32(head)
		if n > maxFrame {
			return
		}
		frame := make([]byte, 4+n)
		if _, err := io.ReadFull(r, frame); err != nil {
			return
		}
		select {
		case j.peer.queue <- frame:
			j.peer.frames.Add(1)
		default:
			j.peer.dropped.Add(1)
		}
	}
}

// write writes queued frames to the machine until it is gone.
func (j *jack) write(c net.Conn, gone <-chan struct{}) {
	w := bufio.NewWriterSize(c, 64<<10)
	for {
		select {
		case frame := <-j.queue:
			if _, err := w.Write(frame); err != nil {
				return
			}
		case <-gone:
			return
		}
		if len(j.queue) == 0 && w.Flush() != nil {
			return
		}
	}
}

// sendFrame sends a frame in qemu's format.
func sendFrame(t *testing.T, c net.Conn, text string) {
	t.Helper()
	b := binary.BigEndian.AppendUint32(nil, uint32(len(text)))
	if _, err := c.Write(append(b, text...)); err != nil {
		t.Fatal(err)
	}
}

func receiveFrame(t *testing.T, c net.Conn) string {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(patience))
	var head [4]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, binary.BigEndian.Uint32(head[:]))
	if _, err := io.ReadFull(c, b); err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestPanel tests the panel itself. Frames have to arrive in order, a machine that takes no frames
// must not block the other one, and a machine that comes back has to be served again.
func TestPanel(t *testing.T) {
	p, err := newPanel(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.close(); err != nil {
			t.Error(err)
		}
	})
	plug := func(i int) net.Conn {
		c, err := net.Dial("unix", p.path(i))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	a, b := plug(0), plug(1)
	for i := range 100 {
		sendFrame(t, a, fmt.Sprint("to b ", i))
		sendFrame(t, b, fmt.Sprint("to a ", i))
	}
	for i := range 100 {
		if got, want := receiveFrame(t, b), fmt.Sprint("to b ", i); got != want {
			t.Fatalf("b got %q, not %q", got, want)
		}
		if got, want := receiveFrame(t, a), fmt.Sprint("to a ", i); got != want {
			t.Fatalf("a got %q, not %q", got, want)
		}
	}
	b.Close()
	b = plug(1)
	sendFrame(t, b, "again")
	if got := receiveFrame(t, a); got != "again" {
		t.Fatalf("a got %q from a machine that came back", got)
	}
	// These are more frames than the sockets and the queue hold. If the panel dropped none, this
	// loop would block.
	big := string(make([]byte, 64<<10))
	for range 2 * panelQueue {
		sendFrame(t, a, big)
	}
	if p.ports[1].dropped.Load() == 0 {
		t.Error("nothing was dropped for a machine that takes nothing")
	}
}
