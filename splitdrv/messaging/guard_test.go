package messaging_test

import (
	"fmt"
	"testing"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// guard is one way to protect the pools of a session in a mode with RDMA writes.
type guard struct {
	mode       protocol.Mode
	protection messaging.Protection
	agreed     bool // the peer has agreed to invalidate windows
	keys       bool // keys are sent behind binds
}

// guards has all combinations that are tested.
var guards = func() []guard {
	var all []guard
	for _, mode := range []protocol.Mode{protocol.ModeImm, protocol.ModeIndicate} {
		all = append(all, guard{mode, messaging.ProtectRegion, true, true},
			guard{mode, messaging.ProtectWindow, false, false}, guard{mode, messaging.ProtectWindow, true, false},
			guard{mode, messaging.ProtectWindow, false, true}, guard{mode, messaging.ProtectWindow, true, true},
			guard{mode, messaging.ProtectOneTouch, true, true})
	}
	return all
}()

func (g guard) String() string {
	s := fmt.Sprintf("%s, %s", g.mode, g.protection)
	if g.protection == messaging.ProtectWindow && g.agreed {
		s += " with agreement"
	}
	if g.protection == messaging.ProtectWindow && g.keys {
		s += " with keys behind binds"
	}
	return s
}

// of returns cfg with this protection.
func (g guard) of(cfg messaging.Config) messaging.Config {
	cfg.Mode, cfg.Protection, cfg.Invalidation, cfg.OneTouch = g.mode, g.protection, g.agreed, true
	cfg.KeySend = g.keys
	return cfg
}

// check checks the counts of windows bound and invalidated for a side that has lent pools on
// request, at least two, and got them back.
func (g guard) check(t *testing.T, s messaging.Stats) {
	t.Helper()
	c := s.Channels[0]
	gone := s.PoolsReturned
	switch {
	case s.Protection.Name != g.protection:
		t.Errorf("the protection is %v", s.Protection)
	case g.protection == messaging.ProtectRegion:
		if c.WindowsBound+c.WindowsInvalidated+c.WindowsInvalidatedByPeer != 0 {
			t.Errorf("windows without need: %+v", c)
		}
	case g.protection == messaging.ProtectOneTouch:
		// A window is bound each time its element is lent. All are invalidated except those of
		// the elements that are lent now.
		transfers := c.RxFrames - c.RxPacked + c.RxPacks
		if n := c.WindowsBound - c.WindowsInvalidated; c.WindowsBound < transfers || n != uint64(c.Local.Elements) ||
			c.WindowsInvalidatedByPeer != 0 {
			t.Errorf("%d windows were bound, %d invalidated, %d by the peer, for %d transfers; %d elements are lent",
				c.WindowsBound, c.WindowsInvalidated, c.WindowsInvalidatedByPeer, transfers, c.Local.Elements)
		}
	case c.WindowsBound != gone+1:
		t.Errorf("%d windows were bound for 1 pool and %d more", c.WindowsBound, gone)
	case g.agreed && (c.WindowsInvalidatedByPeer != gone || c.WindowsInvalidated != 0),
		!g.agreed && (c.WindowsInvalidated != gone || c.WindowsInvalidatedByPeer != 0):
		t.Errorf("%d windows were invalidated by this side, %d by the peer, for %d pools", c.WindowsInvalidated,
			c.WindowsInvalidatedByPeer, gone)
	}
}
