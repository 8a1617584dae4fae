package tx

import (
	"sync/atomic"
	"testing"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/vnet"
)

// sizedPort has frames of these sizes.
type sizedPort struct {
	emptyPort
	sizes []int
}

func (p *sizedPort) ReadFrames(ops []vnet.ReadOp) int {
	n := min(len(ops), len(p.sizes))
	for i, size := range p.sizes[:n] {
		ops[i].Frame, ops[i].Err = ops[i].Slot[:size], nil
	}
	p.sizes = p.sizes[n:]
	if n == len(ops) {
		return n
	}
	return n + p.emptyPort.ReadFrames(ops[n:])
}

// TestNoneOvertakes sends a frame in mode imm to a pool that immediate data cannot name. The next frame, to
// another pool, must stay until the transfer has completed, its indication was sent, and the peer has
// returned the element.
func TestNoneOvertakes(t *testing.T) {
	p := newPacking(t, protocol.ModeImm, usual(), 0, 2*packElement)
	large := bufpool.NewRemote(protocol.Pool{
		Ref: protocol.MaxImmPools, Elements: 8, ElementSize: 2 * packElement, Context: protocol.PoolContext(1, 0),
	}, bufpool.LatestFirst)
	if err := p.pools.Notify(bufpool.Event{Kind: bufpool.Lent, Remote: large}); err != nil {
		t.Fatal(err)
	}
	e, err := p.c.NewEvent()
	if err != nil {
		t.Fatal(err)
	}
	port := &sizedPort{emptyPort{e}, []int{packElement, packElement + 1, packElement}}
	if err := p.Begin(port, new(atomic.Pointer[vnet.Keys])); err != nil {
		t.Fatal(err)
	}
	window := p.indications.window
	p.indications.window = 0 // no indication is sent yet
	var elem uint32
	for _, c := range []struct {
		name   string
		before func()
		posted int
	}{
		{"frames come", func() {}, 2},
		{"nothing has completed", func() {}, 2},
		{"it has completed", func() { p.ch.SendCQ = &tardyCQ{CQ: p.ch.SendCQ, id: p.qp.sent[1].ID, polls: 1} }, 2},
		{"it was indicated", func() {
			elem = p.indications.number(1)[0].Element
			p.indications.forget(1)
			p.indications.window = window
		}, 2},
		{"the element is back", func() { p.indications.acknowledge(large, uint16(elem)) }, 3},
	} {
		c.before()
		short, err := p.step()
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if len(p.qp.sent) != c.posted || len(p.indications.pending) > 0 && short != shortOfAcknowledgement {
			t.Fatalf("%s: %d transfers are posted, want %d; short of %d", c.name, len(p.qp.sent), c.posted, short)
		}
	}
	for i, op := range []fabric.Opcode{fabric.OpWriteImm, fabric.OpWrite, fabric.OpWriteImm} {
		if p.qp.sent[i].Op != op {
			t.Errorf("transfer %d is a %v, want %v", i, p.qp.sent[i].Op, op)
		}
	}
}

// TestRoomForIndications completes as many transfers as a sender can have outstanding, and indicates none.
// Each must take up a place, and for another transfer there must be no room.
func TestRoomForIndications(t *testing.T) {
	p := newPacking(t, protocol.ModeIndicate, usual(), 0, packSlotSize)
	g, elem, ok := p.Credits.Take(vnet.MinFrame, packElement)
	if !ok {
		t.Fatal("no element is available")
	}
	for i := range p.depth {
		if n := p.room(); n != p.depth-i {
			t.Fatalf("with %d transfers to be indicated there is room for %d of %d", i, n, p.depth)
		}
		p.posted++
		p.completed = p.posted
		p.indications.add(&inFlightEntry{seq: p.posted, pool: g, elem: elem, length: vnet.MinFrame})
	}
	if short := p.shortOf(vnet.MinFrame); short != shortOfSlot {
		t.Errorf("the sender is short of %d, want %d", short, shortOfSlot)
	}
}

// TestAcknowledgedOnce returns the elements of two messages in the wrong order, as of an element whose last
// transfer was not indicated. The later message stays acknowledged.
func TestAcknowledgedOnce(t *testing.T) {
	p := newPacking(t, protocol.ModeImm, usual(), 0, packSlotSize)
	i, g := &p.indications, p.Pools()[0]
	i.sent = 2
	g.Name(0, 1)
	g.Name(1, 2)
	for _, elem := range []uint16{1, 0} {
		if i.acknowledge(g, elem); i.unacknowledged() != 0 {
			t.Errorf("after element %d is back, %d messages are not acknowledged", elem, i.unacknowledged())
		}
	}
}
