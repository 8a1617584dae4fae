package endpoints

import (
	"testing"

	"github.com/splitnic/splitnic/internal/testenv"
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
			d.up(t)
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
	w := newWorld(t)
	w.unit()
	d, h, _ := w.host("alpha")
	d.up(t)
	if got := h.Status().Traffic.PathMTU; got != 4096 {
		t.Errorf("path MTU %d bytes, want 4096", got)
	}
	w.fabric.SetMTU(1024)
	testenv.Eventually(t, func() bool {
		s := h.Status()
		return s.Sessions > 1 && s.Traffic != nil && s.Traffic.PathMTU == 1024
	}, "a session with the port's new MTU")
	d.up(t)
	w.both(d)
}
