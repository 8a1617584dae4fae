package messaging_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/messaging/cq"
	"github.com/splitnic/splitnic/splitdrv/messaging/porttest"
	"github.com/splitnic/splitnic/vnet"
)

// postsDevice counts the receives without memory, and the calls that post them.
type postsDevice struct {
	fabric.Device
	calls, receives *atomic.Uint64
}

func (d postsDevice) NewDomain() (fabric.Domain, error) {
	dom, err := d.Device.NewDomain()
	return postsDomain{dom, d}, err
}

type postsDomain struct {
	fabric.Domain
	d postsDevice
}

func (d postsDomain) NewQP(c fabric.QPConfig) (fabric.QP, error) {
	qp, err := d.Domain.NewQP(c)
	return postsQP{qp, d.d}, err
}

type postsQP struct {
	fabric.QP
	d postsDevice
}

func (q postsQP) PostRecv(wrs []fabric.RecvWR) (int, error) {
	if wrs[0].LKey == 0 {
		q.d.calls.Add(1)
		q.d.receives.Add(uint64(len(wrs)))
	}
	return q.QP.PostRecv(wrs)
}

// controlWakeups returns how often the control handler was woken, and the number of control
// messages received.
func controlWakeups(c *messaging.Conn) (wakeups, messages uint64) {
	s := c.Stats()
	return s.Handlers[cq.ControlHandler].Wakeups, s.ControlReceived
}

// bouncePort returns each frame written to it, until a number of frames was written. It makes
// no system calls. It is for a polling worker, which both reads and writes.
type bouncePort struct {
	fd     int
	frames atomic.Int64  // number of frames to read
	left   int           // number of frames to write until done is closed
	done   chan struct{} // closed when left reaches 0
}

func newBouncePort(t *testing.T, frames int) *bouncePort {
	t.Helper()
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return &bouncePort{fd: fd, left: frames, done: make(chan struct{})}
}

// FD implements messaging.Port.
func (p *bouncePort) FD() int { return p.fd }

// WriteFD implements messaging.WriteFDer.
func (p *bouncePort) WriteFD() int { return p.fd }

var bounced = frame(1, 100, 1500)

// ReadFrames implements messaging.Port.
func (p *bouncePort) ReadFrames(ops []vnet.ReadOp) int {
	if p.frames.Load() == 0 {
		ops[0].Err = unix.EAGAIN
		return 1
	}
	p.frames.Add(-1)
	ops[0].Frame, ops[0].Err = ops[0].Slot[:copy(ops[0].Slot, bounced)], nil
	return 1
}

// WriteFrames implements messaging.Port.
func (p *bouncePort) WriteFrames(ops []vnet.WriteOp) int {
	for i := range ops {
		ops[i].Err = nil
		if p.left--; p.left == 0 {
			close(p.done)
		}
		if p.left > 0 {
			p.frames.Add(1)
		}
	}
	return len(ops)
}

// TestPollingWorkers sends one frame back and forth between polling workers. The workers must
// poll the control channel for credits themselves, without waking the control handler, and
// post many receives in each call.
func TestPollingWorkers(t *testing.T) {
	const frames = 2000
	n := fabrictest.New()
	var calls, receives atomic.Uint64
	cfg := patient(messaging.Config{Poll: true, KeepAlive: 50 * time.Second})
	a, b := newEndpointOn(t, postsDevice{n.Device("a"), &calls, &receives}, "a", cfg), newEndpoint(t, n, "b", cfg)
	connect(t, a, b)
	for i, h := range []*endpoint{a, b} {
		h.ports[0] = newBouncePort(t, frames+i) // a's port is the first to have all its frames
		if err := h.conn.Start(h.ports); err != nil {
			t.Fatal(err)
		}
	}
	until(t, func() error {
		if s := a.conn.Stats().Channels[0]; s.Remote.Elements == 0 || s.Remote.Elements != s.Remote.Available {
			return errors.New("nothing is lent")
		}
		return nil
	})
	calls.Store(0)
	receives.Store(0)
	woken, before := controlWakeups(a.conn)
	a.ports[0].(*bouncePort).frames.Store(1)
	select {
	case <-a.ports[0].(*bouncePort).done:
	case <-a.conn.Done():
		t.Fatal(a.conn.Err())
	case <-deadline(t).Done():
		t.Fatal("not all frames have arrived")
	}
	wakeups, messages := controlWakeups(a.conn)
	if wakeups, messages = wakeups-woken, messages-before; messages < frames/256 || wakeups > 4 {
		t.Errorf("the control handler was woken %d times, by %d messages", wakeups, messages)
	}
	if c, r := calls.Load(), receives.Load(); r < frames-64 || c > r/8 {
		t.Errorf("%d receives were posted in %d calls", r, c)
	}
	settled(t, a, b)
	untroubled(t, n, a, b)
}

// TestPollingWorkerIsStuck expects that an endpoint still answers requests while its only
// worker waits for room in its port.
func TestPollingWorkerIsStuck(t *testing.T) {
	// Only a has a short peer time-out: the test is about whether a hears b.
	cfg := messaging.Config{Poll: true, KeepAlive: 20 * time.Millisecond, PeerTimeout: 2 * time.Second}
	n := fabrictest.New()
	a, b := newEndpoint(t, n, "a", cfg), newEndpoint(t, n, "b", patient(messaging.Config{Poll: true}))
	connect(t, a, b)
	port := &stuckPort{Single: b.ports[0].(porttest.Batched).Single, conn: b.conn, stuck: make(chan struct{})}
	if err := b.conn.Start([]messaging.Port{porttest.Batched{Single: port}}); err != nil {
		t.Fatal(err)
	}
	if err := a.conn.Start(a.ports); err != nil {
		t.Fatal(err)
	}
	if err := a.wires[0].Send(deadline(t), frame(0, vnet.MinFrame+46, 1500)); err != nil {
		t.Fatal(err)
	}
	<-port.stuck
	for begin := time.Now(); time.Since(begin) < 2*cfg.PeerTimeout; {
		if _, err := a.conn.Request(deadline(t), protocol.CfgKeepAlive, nil); err != nil {
			t.Fatal(err)
		}
	}
}
