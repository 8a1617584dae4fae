package messaging_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/messaging/porttest"
	"github.com/splitnic/splitnic/vnet"
)

// stuckPort is full after room frames, and counts the frames written to it after the session
// has ended.
type stuckPort struct {
	porttest.Single
	room  int
	conn  *messaging.Conn
	stuck chan struct{} // closed when the port is full
	late  atomic.Int64  // number of frames written after the end
}

func (p *stuckPort) WriteFrame([]byte) error {
	if p.conn.Err() != nil {
		p.late.Add(1)
		return nil
	}
	if p.room--; p.room >= 0 {
		return nil
	}
	if p.room == -1 {
		close(p.stuck)
	}
	return unix.EAGAIN
}

// TestStuckPortAtTheEnd ends a session whose port is full. The frames for which it had no room
// are lost, and no later frame may be delivered.
func TestStuckPortAtTheEnd(t *testing.T) {
	n := fabrictest.New()
	fabrictest.NoLeaks(t, n)
	a := newEndpoint(t, n, "a", patient(messaging.Config{SendSlots: 400}))
	b := newEndpoint(t, n, "b", patient(messaging.Config{}))
	connect(t, a, b)
	// A full queue does not become writable by itself.
	queue := b.ports[0].(porttest.Batched).Single
	for full := queue.WriteFrame(frame(0, vnet.MaxFrame-4, 1500)); full == nil; full = queue.WriteFrame(frame(0,
		vnet.MaxFrame-4, 1500)) {
	}
	port := &stuckPort{Single: queue, room: 10, conn: b.conn, stuck: make(chan struct{})}
	if err := b.conn.Start([]messaging.Port{porttest.Batched{Single: port}}); err != nil {
		t.Fatal(err)
	}
	if err := a.conn.Start(a.ports); err != nil {
		t.Fatal(err)
	}
	until(t, func() error {
		if a.conn.Stats().Channels[0].Remote.Elements == 0 {
			return errors.New("nothing is lent")
		}
		return nil
	})
	// Stall the peer, so that its receiver finds many frames together, in packs.
	n.Stall("b")
	const frames = 200
	for i := range uint64(frames) {
		if err := a.wires[0].Send(deadline(t), frame(i, 100, 1500)); err != nil {
			t.Fatal(err)
		}
	}
	until(t, func() error {
		if s := a.conn.Stats().Channels[0]; s.TxFrames < frames {
			return fmt.Errorf("%d of %d frames have left", s.TxFrames, frames)
		}
		return nil
	})
	n.Resume("b")
	select {
	case <-port.stuck:
	case <-deadline(t).Done():
		t.Fatal("the port is not full")
	}
	if err := b.conn.Close(); err != nil {
		t.Error(err)
	}
	if late := port.late.Load(); late > 0 {
		t.Errorf("%d frames were delivered behind those that the port had no room for", late)
	}
}
