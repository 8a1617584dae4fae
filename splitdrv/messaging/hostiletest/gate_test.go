package hostiletest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/splitnic/splitnic/fabric"
)

// errRevocation is the error of an invalidation that was held back until the session ended.
var errRevocation = errors.New("the invalidation was held back for ever")

// gate is a device whose queue pairs hold back the invalidation of windows until the gate is open.
// This prolongs the time in which a key that the session wants to revoke is still valid.
type gate struct {
	fabric.Device
	ctx     context.Context // its end makes invalidations that are held back fail
	reached atomic.Int64    // number of posts with invalidations, held back or not
	open    chan struct{}
	once    sync.Once
}

func newGate(ctx context.Context, d fabric.Device) *gate {
	return &gate{Device: d, ctx: ctx, open: make(chan struct{})}
}

// lift opens the gate.
func (g *gate) lift() { g.once.Do(func() { close(g.open) }) }

// NewDomain implements fabric.Device.
func (g *gate) NewDomain() (fabric.Domain, error) {
	d, err := g.Device.NewDomain()
	return gatedDomain{d, g}, err
}

type gatedDomain struct {
	fabric.Domain
	gate *gate
}

// NewQP implements fabric.Domain.
func (d gatedDomain) NewQP(cfg fabric.QPConfig) (fabric.QP, error) {
	q, err := d.Domain.NewQP(cfg)
	return gatedQP{q, d.gate}, err
}

type gatedQP struct {
	fabric.QP
	gate *gate
}

// PostSend implements fabric.QP.
func (q gatedQP) PostSend(wrs []fabric.SendWR) (int, error) {
	if slices.ContainsFunc(wrs, func(w fabric.SendWR) bool { return w.Op == fabric.OpLocalInv }) {
		q.gate.reached.Add(1)
		select {
		case <-q.gate.open:
		case <-q.gate.ctx.Done():
			return 0, errRevocation
		}
	}
	return q.QP.PostSend(wrs)
}
