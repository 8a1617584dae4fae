package tx

import (
	"sync/atomic"
	"testing"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/capture"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/core"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/memory"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/pools"
	"github.com/splitnic/splitnic/vnet"
)

// recallingPort counts the frames whose loans it has taken back.
type recallingPort struct {
	core.ZeroCopyPort
	recall  func()
	fetched int
}

func (p *recallingPort) OnRecall(fn func()) { p.recall = fn }

func (p *recallingPort) Fetch(_ *vnet.ReadOp, lent *vnet.Lent) {
	p.fetched++
	lent.Pieces = lent.Pieces[:0]
}

func (p *recallingPort) ReadFrames(ops []vnet.ReadOp) int { return len(ops) }

func (p *recallingPort) ReadLent(ops []vnet.ReadOp, lent []vnet.Lent, _ *vnet.Keys) int {
	for i := range ops {
		lent[i].Pieces = append(lent[i].Pieces, vnet.Piece{})
	}
	return len(ops)
}

// TestNothingLentToCaptures has a port lend frames while they are captured, and before and after. A capture
// needs whole frames, so the sender must then ask for these, as while no memory is registered.
func TestNothingLentToCaptures(t *testing.T) {
	var point capture.Point
	o := usual()
	o.ZeroCopy = memory.NewBudget(1 << 20)
	var keys atomic.Pointer[vnet.Keys]
	l := newLoans(&o, &keys, &recallingPort{}, nil)
	path, ops := point.Path("uplink", ""), make([]vnet.ReadOp, 2)
	expect := func(when string, want int) {
		t.Helper()
		if n := l.read(ops, path); n != len(ops) || len(l.lent[0].Pieces) != want {
			t.Errorf("%s: of %d frames %d pieces are lent, want %d", when, n, len(l.lent[0].Pieces), want)
		}
	}
	expect("no memory is registered", 0)
	keys.Store(&vnet.Keys{})
	expect("nobody captures", 1)
	c, err := point.Start(capture.Config{})
	if err != nil {
		t.Fatal(err)
	}
	expect("somebody captures", 0)
	c.End()
	expect("nobody captures any more", 1)
}

// TestRecall has a port ask for its loans while the sender has read two frames, one of them lent. The
// sender must be woken, and return that loan when it reads its queue.
func TestRecall(t *testing.T) {
	o := usual()
	o.ZeroCopy = memory.NewBudget(1 << 20)
	s := newIdle(t, protocol.ModeImm, o, 0, pools.Options{})
	p := &recallingPort{}
	s.in.loans = newLoans(s.o, nil, p, s.Queue.Wake)
	s.in.have = 2
	s.in.loans.lent[1].Pieces = append(s.in.loans.lent[1].Pieces, vnet.Piece{})
	s.readQueue()
	if p.fetched != 0 {
		t.Error("a loan was returned before the port has asked for it")
	}
	p.recall()
	if !s.Queue.Pending.Load() {
		t.Error("the sender is not woken")
	}
	s.readQueue()
	if p.fetched != 1 || s.in.lent(1) != nil {
		t.Errorf("%d loans were returned, want 1", p.fetched)
	}
}
