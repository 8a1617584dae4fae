package messaging_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// batching keeps the completions of queues for sends and receives, as the control channel has one,
// while they are held. The first that has failed is polled with all before it.
type batching struct {
	mu   sync.Mutex
	held bool
	kept []fabric.Completion
}

func (d *batching) poll(q *polledCQ, out []fabric.Completion) (int, error) {
	if !q.sends || !q.recvs {
		return q.CQ.Poll(out)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	n, err := q.CQ.Poll(out)
	if !d.held || err != nil {
		return n, err
	}
	d.kept = append(d.kept, out[:n]...)
	if !slices.ContainsFunc(d.kept, func(c fabric.Completion) bool { return c.Err() != nil }) {
		return 0, nil
	}
	d.held = false
	return copy(out, d.kept), nil
}

// TestCauseInBatch has a message arrive, and a send fail, before either is polled. The device refuses
// the receive for the next message. The session must end with the failure.
func TestCauseInBatch(t *testing.T) {
	for i := range 8 { // it also matters who sees the failure first
		t.Run(fmt.Sprint(i), testCauseInBatch)
	}
}

func testCauseInBatch(t *testing.T) {
	n := fabrictest.New(fabrictest.WithAdapter(fabrictest.Adapter{StrictPosts: unix.EINVAL}))
	var d batching
	sides := started(t, n, &polled{n.Device("a"), d.poll}, n.Device("b"), patient(messaging.Config{}))
	a, b := sides[0], sides[1]
	d.mu.Lock()
	d.held = true
	d.mu.Unlock()
	ctx := deadline(t)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { _, _ = b.conn.Request(ctx, protocol.CfgKeepAlive, nil) })
	until(t, func() error {
		d.mu.Lock()
		defer d.mu.Unlock()
		if !slices.ContainsFunc(d.kept, func(c fabric.Completion) bool { return c.Op == fabric.OpRecv }) {
			return fmt.Errorf("no message among %+v", d.kept)
		}
		return nil
	})
	n.OnSend("a", func(uint32, fabric.SendWR) fabric.Status { return fabric.StatusRemOpErr })
	wg.Go(func() { _, _ = a.conn.Request(ctx, protocol.CfgKeepAlive, nil) })
	if err := ended(t, a); !errors.Is(err, &fabric.WCError{Status: fabric.StatusRemOpErr}) {
		t.Errorf("%v", err)
	}
	_ = ended(t, b)
}
