package paths

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/epoll"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/vnet"
)

// device is a queue of a netdevice in memory, with a descriptor to wait for frames.
type device struct {
	mu      sync.Mutex
	in      [][]byte
	out     [][]byte
	err     error              // error of the next read from the empty queue
	full    bool               // the queue accepts no frame
	quiet   bool               // written frames are discarded
	before  func()             // called before frames are written
	reading func()             // called after frames were read
	sink    func(frame []byte) // gets written frames instead of out
	event   *epoll.Event
}

func newDevice(t testing.TB) *device {
	t.Helper()
	e, err := epoll.NewEvent()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return &device{event: e}
}

// newSplit makes a Split of n queues in memory.
func newSplit(t testing.TB, n int, cfg Config) (*Split, []*device) {
	t.Helper()
	var devices []*device
	var ports []messaging.Port
	for range n {
		d := newDevice(t)
		devices, ports = append(devices, d), append(ports, d)
	}
	s, err := New(ports, cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.grace = time.Hour // a test ends it by graceEnds
	t.Cleanup(func() {
		for _, p := range s.expecting() {
			(&Path{route: p, split: s}).Close(nil)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, devices
}

func (d *device) send(frames ...[]byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.in = append(d.in, frames...)
	d.event.Set()
}

func (d *device) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = err
	d.event.Set()
}

// waiting returns the number of frames that were not read.
func (d *device) waiting() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.in)
}

// received returns and removes the written frames.
func (d *device) received() [][]byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := d.out
	d.out = nil
	return out
}

func (d *device) FD() int { return d.event.FD() }

func (d *device) ReadFrames(ops []vnet.ReadOp) int {
	if d.reading != nil {
		defer d.reading()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range ops {
		if len(d.in) == 0 {
			ops[i].Frame, ops[i].Err = nil, errAgain
			if d.err != nil {
				ops[i].Err = d.err
			} else {
				d.event.Clear()
			}
			return i + 1
		}
		ops[i].Frame, ops[i].Err = ops[i].Slot[:copy(ops[i].Slot, d.in[0])], nil
		d.in = d.in[1:]
	}
	return len(ops)
}

func (d *device) WriteFrames(ops []vnet.WriteOp) int {
	if d.before != nil {
		d.before()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range ops {
		if ops[i].Err = nil; d.full {
			ops[i].Err = errAgain
			return i
		}
		switch {
		case d.sink != nil:
			d.sink(slices.Concat(ops[i].Head, ops[i].Rest))
		case !d.quiet:
			d.out = append(d.out, slices.Concat(ops[i].Head, ops[i].Rest))
		}
	}
	return len(ops)
}

// sender reads a port like a sender of the messaging layer, without a Conn.
type sender struct {
	port messaging.Port
	ops  []vnet.ReadOp
}

func newSender(port messaging.Port, most int) *sender {
	s := &sender{port: port, ops: make([]vnet.ReadOp, most)}
	for i := range s.ops {
		s.ops[i].Slot = make([]byte, vnet.MaxFrame+1)
	}
	return s
}

// read reads once, up to most frames, and returns copies of them.
func (s *sender) read(t testing.TB, most int) (frames [][]byte) {
	t.Helper()
	ops := s.ops[:min(most, len(s.ops))]
	n := s.port.ReadFrames(ops)
	if n < 1 || n > len(ops) {
		t.Fatalf("%d frames of %d were read", n, len(ops))
	}
	for i, op := range ops[:n] {
		switch {
		case op.Err == nil:
			frames = append(frames, slices.Clone(op.Frame))
		case errors.Is(op.Err, unix.EAGAIN):
			if i != n-1 {
				t.Fatal("frames follow the end of a queue")
			}
		case !errors.Is(op.Err, vnet.ErrFiltered):
			t.Fatal(op.Err)
		}
	}
	return frames
}

// drain reads until there are no more frames.
func (s *sender) drain(t testing.TB) (frames [][]byte) {
	t.Helper()
	for {
		some := s.read(t, len(s.ops))
		if len(some) == 0 {
			return frames
		}
		frames = append(frames, some...)
	}
}

// readable reports whether a sender that waits for fd would wake.
func readable(t testing.TB, fd int) bool {
	t.Helper()
	return testenv.Readable(t, fd, 0)
}
