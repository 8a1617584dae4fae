package tx

import (
	"testing"

	"github.com/splitnic/splitnic/protocol"
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
