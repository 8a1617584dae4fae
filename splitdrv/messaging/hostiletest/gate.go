package hostiletest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/splitnic/splitnic/fabric"
)

// errRevocation is what a session hears whose invalidation was held back until it
// ended.
var errRevocation = errors.New("the invalidation was held back for ever")

// gate is a device whose queue pairs hold back the invalidation of windows until it
// is open: the time in which a key is still good that the session wants to revoke
// becomes as long as the attacker likes.
type gate struct {
	fabric.Device
	ctx     context.Context // ends the holding back
	reached atomic.Int64    // invalidations that were held back, or went through
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
