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

// batching is a device whose queues for sends and receives, as the control channel has one, keep
// their completions while they are held. The first that has failed is polled with all before it.
type batching struct {
	fabric.Device
	mu   sync.Mutex
	held bool
	kept []fabric.Completion
}

type batchingDomain struct {
	fabric.Domain
	d *batching
}

type batchingCQ struct {
	fabric.CQ
	d    *batching
	both bool // it is one for sends and receives
}

func (d *batching) NewDomain() (fabric.Domain, error) {
	dom, err := d.Device.NewDomain()
	return batchingDomain{dom, d}, err
}

func (m batchingDomain) NewCQ(depth, vector int) (fabric.CQ, error) {
	cq, err := m.Domain.NewCQ(depth, vector)
	return &batchingCQ{CQ: cq, d: m.d}, err
}

func (m batchingDomain) NewQP(cfg fabric.QPConfig) (fabric.QP, error) {
	send, recv := cfg.SendCQ.(*batchingCQ), cfg.RecvCQ.(*batchingCQ)
	send.both = send == recv
	cfg.SendCQ, cfg.RecvCQ = send.CQ, recv.CQ
	return m.Domain.NewQP(cfg)
}

func (c *batchingCQ) Poll(out []fabric.Completion) (int, error) {
	if !c.both {
		return c.CQ.Poll(out)
	}
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	n, err := c.CQ.Poll(out)
	if !c.d.held || err != nil {
		return n, err
	}
	c.d.kept = append(c.d.kept, out[:n]...)
	if !slices.ContainsFunc(c.d.kept, func(c fabric.Completion) bool { return c.Err() != nil }) {
		return 0, nil
	}
	c.d.held = false
	return copy(out, c.d.kept), nil
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
	d := &batching{Device: n.Device("a")}
	sides := started(t, n, d, n.Device("b"), patient(messaging.Config{}))
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
