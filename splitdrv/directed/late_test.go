package directed

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
)

// lateDevice is a device that moves data late: an RDMA read or write takes place only when its
// user waits for the completion.
type lateDevice struct{ fabric.Device }

// NewDomain implements fabric.Device.
func (d lateDevice) NewDomain() (fabric.Domain, error) {
	dom, err := d.Device.NewDomain()
	return lateDomain{dom}, err
}

type lateDomain struct{ fabric.Domain }

// NewCQ implements fabric.Domain.
func (d lateDomain) NewCQ(depth, vector int) (fabric.CQ, error) {
	cq, err := d.Domain.NewCQ(depth, vector)
	return &lateCQ{CQ: cq}, err
}

// NewQP implements fabric.Domain.
func (d lateDomain) NewQP(c fabric.QPConfig) (fabric.QP, error) {
	cq := c.SendCQ.(*lateCQ)
	c.SendCQ, c.RecvCQ = cq.CQ, c.RecvCQ.(*lateCQ).CQ
	qp, err := d.Domain.NewQP(c)
	return lateQP{qp, cq}, err
}

type lateCQ struct {
	fabric.CQ

	mu   sync.Mutex
	post func() error // posts what is late
}

// Wait implements fabric.CQ.
func (c *lateCQ) Wait(ctx context.Context) error {
	c.mu.Lock()
	post := c.post
	c.post = nil
	c.mu.Unlock()
	if post != nil {
		if err := post(); err != nil {
			return err
		}
	}
	return c.CQ.Wait(ctx)
}

type lateQP struct {
	fabric.QP

	cq *lateCQ
}

// PostSend implements fabric.QP.
func (q lateQP) PostSend(wrs []fabric.SendWR) (int, error) {
	if wrs[0].Op == fabric.OpSend {
		return q.QP.PostSend(wrs)
	}
	late := slices.Clone(wrs)
	q.cq.mu.Lock()
	defer q.cq.mu.Unlock()
	q.cq.post = func() error {
		_, err := q.QP.PostSend(late)
		return err
	}
	return len(wrs), nil
}

// TestDirectedLate expects a transfer to be reported only when its data have arrived, on a fabric
// that moves them late. The transfer has several parts, and the last one is short.
func TestDirectedLate(t *testing.T) {
	r := newFixture(t, inMemory, func(side int, c *Config) {
		if side == unitSide {
			c.Device = lateDevice{c.Device}
			c.Storage[tapeDevice] = swapDrive{c.Storage[tapeDevice]}
		}
	})
	const size = 2*stagingSize + 100
	in, results := r.memory(r.toOwner, size, Result)
	list := []protocol.ListElement{{Fragment: results.Fragment(0, size), EndOfBuffer: true}}
	r.status(r.toOwner.Do(t.Context(), one(protocol.DirectedRead, tapeDevice, 77, list)), protocol.DirectedOK)
	if !r.drive.holds(77, in) {
		t.Error("a read was reported before its data arrived")
	}
	out, m := r.memory(r.toOwner, size, Source)
	pattern(out, 6)
	list = []protocol.ListElement{{Fragment: m.Fragment(0, size), EndOfBuffer: true}}
	r.status(r.toOwner.Do(t.Context(), one(protocol.DirectedWrite, tapeDevice, 5, list)), protocol.DirectedOK)
	if !r.drive.holds(5, out) {
		t.Error("a write was reported before its data arrived")
	}
	// The I/O device has the last byte of the source data before it returns the first result.
	exchange := Transaction{Operation: protocol.DirectedExchange, Offset: 5}
	clear(in)
	pattern(out[:size/3], 44)
	was := slices.Clone(r.drive.mem[5:][:size/2])
	exchange.Source = []protocol.ListElement{{Fragment: m.Fragment(0, size/3), EndOfBuffer: true}}
	exchange.Results = []protocol.ListElement{{Fragment: results.Fragment(0, size/2), EndOfBuffer: true}}
	r.status(r.toOwner.Do(t.Context(), Request{tapeDevice, []Transaction{exchange}}), protocol.DirectedOK)
	if !r.drive.holds(5, out[:size/3]) || !slices.Equal(in[:size/2], was) {
		t.Error("an exchange was reported, or took place, before its data arrived")
	}
}
