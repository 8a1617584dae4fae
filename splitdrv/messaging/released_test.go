package messaging_test

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/messaging/porttest"
	"github.com/splitnic/splitnic/vnet"
)

// sharedPort is a messaging.SharedPort that records whether it is released.
type sharedPort struct {
	porttest.Batched
	released atomic.Bool
}

func (p *sharedPort) ReadFrames(ops []vnet.ReadOp) int {
	p.released.Store(false)
	return p.Batched.ReadFrames(ops)
}

func (p *sharedPort) Release() { p.released.Store(true) }

// is waits until the port is released, or not, as given.
func (p *sharedPort) is(t *testing.T, released bool) {
	t.Helper()
	until(t, func() error {
		if p.released.Load() != released {
			return errors.New("the port is released, or it is not, and should be the other")
		}
		return nil
	})
}

// TestSharedPortIsReleased checks that a sender releases its port when it cannot send: without
// credits, while paused, and at its end. A sender that waits for frames must not.
func TestSharedPortIsReleased(t *testing.T) {
	for _, mode := range protocol.Modes() {
		t.Run(string(mode), func(t *testing.T) {
			cfg := patient(messaging.Config{Mode: mode,
				Pools: []messaging.PoolConfig{{ElementSize: 2048, Elements: 8}}})
			_, a, b := newStopped(t, cfg, cfg)
			p := &sharedPort{Batched: a.ports[0].(porttest.Batched)}
			a.ports = []messaging.Port{p}
			for _, h := range []*endpoint{a, b} {
				if err := h.conn.Start(h.ports); err != nil {
					t.Fatal(err)
				}
			}
			ctx := deadline(t)
			const frames = 5000 // more than the sockets and the pool hold
			sizes := slices.Repeat([]int{1000}, frames)
			sent := sendAll(ctx, a.wires[0], sizes, 1500)
			p.is(t, true) // the peer's port is full
			if err := errors.Join(receiveAll(ctx, b.wires[0], sizes, 1500), <-sent); err != nil {
				t.Fatal(err)
			}
			p.is(t, false)
			if err := a.conn.Pause(ctx); err != nil {
				t.Fatal(err)
			}
			p.is(t, true)
			a.conn.Resume()
			p.is(t, false)
			if a.conn.Stop(); !p.released.Load() {
				t.Error("the port is not released at the end")
			}
		})
	}
}
