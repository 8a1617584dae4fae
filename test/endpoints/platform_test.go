package endpoints

import (
	"testing"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// TestPlatformStatus expects the identifiers of both processes in both statuses.
func TestPlatformStatus(t *testing.T) {
	w := newWorld(t)
	u, _ := w.unit()
	var own *session.Security
	d, h, _ := w.host("alpha", func(c *host.Config) { own = c.Security })
	d.up(t)
	if s := h.Status(); s.IOUnit.Platform == 0 || s.IOUnit.Platform != w.trust.Platform() {
		t.Errorf("the I/O unit is %v, for its host %v", w.trust.Platform(), s.IOUnit.Platform)
	}
	testenv.Eventually(t, func() bool {
		s := u.Status()
		return len(s.Hosts) == 1 && s.Hosts[0].Platform == own.Platform()
	}, "the host's identifier in the I/O unit's status")
}
