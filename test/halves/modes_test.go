package halves

import (
	"errors"
	"testing"
	"time"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/iounit"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// TestModes moves frames in each transfer mode, with more pools allowed than
// there are at the beginning.
func TestModes(t *testing.T) {
	for _, mode := range protocol.Modes() {
		t.Run(string(mode), func(t *testing.T) {
			w := newWorld(t)
			w.unit(func(c *iounit.Config) { c.Messaging.MaxPools = 8 })
			d, h, _ := w.host("alpha", func(c *host.Config) { c.Modes, c.Messaging.MaxPools = []protocol.Mode{mode}, 7 })
			d.up(t)
			w.both(d)
			s := h.Status()
			if s.IOUnit.Mode != mode || s.Traffic.Mode != mode || s.Traffic.Channels[0].TxFrames == 0 {
				t.Errorf("status: %+v", s)
			}
		})
	}
}

// TestModeChosen has the I/O unit choose from the host's list.
func TestModeChosen(t *testing.T) {
	w := newWorld(t)
	w.unit(func(c *iounit.Config) { c.Modes = []protocol.Mode{protocol.ModeImm, protocol.ModeSend} })
	d, h, _ := w.host("alpha", func(c *host.Config) {
		c.Modes = []protocol.Mode{protocol.ModeSendUC, protocol.ModeSend, protocol.ModeImm}
	})
	d.up(t)
	w.both(d)
	if m := h.Status().IOUnit.Mode; m != protocol.ModeSend {
		t.Errorf("mode %s", m)
	}
	_, _, r := w.host("beta", func(c *host.Config) { c.Modes = []protocol.Mode{protocol.ModeIndicate} })
	select {
	case err := <-r.done:
		r.once.Do(func() {})
		var refused *session.RefusedError
		if !errors.As(err, &refused) || refused.Code != session.CodeMode {
			t.Errorf("a mode that the I/O unit does not allow: %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the host goes on")
	}
}
