package endpoints

import (
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/iounit"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// TestSmallerPath has a switch on the way that drops the large packets of one side. No session with
// the path MTU of the ports may begin: it would have a carrier and pass no large frame. The host
// must use a smaller path MTU, and say so.
func TestSmallerPath(t *testing.T) {
	for _, side := range []string{"alpha", "unit"} {
		t.Run(side, func(t *testing.T) {
			w := newWorld(t)
			w.fabric.DropAbove(side, 1400)
			w.unit()
			d, h, _ := w.host("alpha")
			upAfter(t, d, h, 2) // attempts with packets of 4096 and 2048 bytes
			s := h.Status()
			if s.Sessions != 1 {
				t.Errorf("%d sessions, one of them with a path MTU that does not get through", s.Sessions)
			}
			if got := s.Traffic.PathMTU; got != 1024 {
				t.Errorf("path MTU %d bytes, want 1024", got)
			}
			testenv.Eventually(t, func() bool { return h.Status().Traffic.PathProved }, "the I/O unit's packet of that length")
			if s.IOUnit.PathMTULimit != 1024 {
				t.Errorf("the status has %d as the limit", s.IOUnit.PathMTULimit)
			}
			w.both(d)
		})
	}
}

// upAfter waits for the carrier. A host of which more attempts than failures have failed uses a path
// MTU again that does not get through.
func upAfter(t *testing.T, d *netdev, h *host.Host, failures int) {
	t.Helper()
	testenv.Eventually(t, func() bool {
		if s := h.Status(); s.Attempts > failures {
			t.Fatalf("attempt %d has failed too, with a path MTU limit of %d bytes: %s", s.Attempts, s.IOUnit.PathMTULimit,
				s.LastError)
		}
		return h.Status().Netdevice.Carrier
	}, "carrier")
	d.up(t)
}

// TestNoPath has a switch that drops all packets but the smallest. There is no carrier, and the
// status must say why.
func TestNoPath(t *testing.T) {
	w := newWorld(t)
	w.fabric.DropAbove("alpha", 200)
	w.unit()
	_, h, _ := w.host("alpha")
	testenv.Eventually(t, func() bool { return h.Status().LastError != "" }, "an attempt that came to nothing")
	testenv.Explained(t, h.Status().LastError)
	if s := h.Status(); s.Netdevice.Carrier || s.IOUnit.PathMTULimit == 0 {
		t.Errorf("carrier %t, path MTU limit %d", s.Netdevice.Carrier, s.IOUnit.PathMTULimit)
	}
}

// TestPathShrinks lowers the port's MTU below the path MTU of a session. Packets of the session's
// path MTU would be lost, so it has to be replaced by one that fits.
func TestPathShrinks(t *testing.T) {
	// The port is looked at after each four intervals.
	lively := messaging.Config{PeerTimeout: time.Minute, KeepAlive: 10 * time.Millisecond}
	w := newWorld(t)
	w.unit(func(c *iounit.Config) { c.Messaging = lively })
	d, h, _ := w.host("alpha", func(c *host.Config) { c.Messaging = lively })
	d.up(t)
	if got := h.Status().Traffic.PathMTU; got != 4096 {
		t.Errorf("path MTU %d bytes, want 4096", got)
	}
	w.fabric.SetMTU(1024)
	before := h.Status().Traffic.ControlReceived
	testenv.Eventually(t, func() bool {
		s := h.Status()
		if s.Traffic == nil {
			return false
		}
		if n := s.Traffic.ControlReceived; s.Sessions == 1 && n > before+200 {
			t.Fatalf("the session goes on: %d messages of it have come since", n-before)
		}
		if s.Sessions > 1 && s.Traffic.PathMTU != 1024 {
			t.Fatalf("a session with a path MTU of %d bytes", s.Traffic.PathMTU)
		}
		return s.Sessions > 1
	}, "another session")
	d.up(t)
	w.both(d)
}
