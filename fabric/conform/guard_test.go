package conform_test

import (
	"testing"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/conform"
	"github.com/splitnic/splitnic/fabric/fabrictest"
)

// TestTryWindows tries the windows of devices that are not as they claim. The trial must find that
// out, and leave nothing open on the device.
func TestTryWindows(t *testing.T) {
	works, bounded := conform.Windows{Work: true}, conform.Windows{Work: true, Bounds: true}
	loose, none := fabrictest.DefaultLimits(), fabrictest.DefaultLimits()
	loose.WindowBounds = false
	none.Windows, none.WindowBounds = false, false
	for _, c := range []struct {
		name   string
		fault  fabrictest.WindowFault
		limits fabric.Limits
		want   conform.Windows // without Why
		as     bool            // as the device claims: Why is empty
	}{
		{"all there is", fabrictest.WindowsWork, fabrictest.DefaultLimits(), bounded, true},
		{"no bounds claimed", fabrictest.WindowsWork, loose, works, true},
		{"none claimed", fabrictest.WindowsWork, none, conform.Windows{}, true},
		{"none allocated", fabrictest.NoWindowAlloc, fabrictest.DefaultLimits(), conform.Windows{}, false},
		{"binds refused", fabrictest.NoWindowBind, fabrictest.DefaultLimits(), conform.Windows{}, false},
		{"binds fail", fabrictest.FailedWindowBind, fabrictest.DefaultLimits(), conform.Windows{}, false},
		{"no bounds", fabrictest.UnboundedWindows, fabrictest.DefaultLimits(), works, false},
		{"no bounds at the end", fabrictest.OpenEndedWindows, fabrictest.DefaultLimits(), conform.Windows{}, false},
		{"guard nothing", fabrictest.UncheckedWindows, fabrictest.DefaultLimits(), conform.Windows{}, false},
		{"open to other queue pairs", fabrictest.SharedWindows, fabrictest.DefaultLimits(), conform.Windows{}, false},
		{"binds take effect late", fabrictest.LateWindowBind, fabrictest.DefaultLimits(), conform.Windows{}, false},
		{"invalidations take effect late", fabrictest.LateWindowUnbind, fabrictest.DefaultLimits(), conform.Windows{}, false},
		{"guard nothing, no bounds claimed", fabrictest.UncheckedWindows, loose, conform.Windows{}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := fabrictest.New(fabrictest.WithLimits(c.limits), fabrictest.WithAdapter(fabrictest.Adapter{Windows: c.fault}))
			dev := n.Device("a")
			got, sure := conform.TryWindows(dev)
			if c.as != (got.Why == "") || !sure {
				t.Errorf("reason %q, sure %v", got.Why, sure)
			}
			got.Why = ""
			if got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
			if l := n.Live(); l != (fabrictest.Live{Devices: l.Devices}) {
				t.Errorf("left open: %+v", l)
			}
			if err := dev.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestTryWindowsInVain expects no finding of a device on which nothing can be tried.
func TestTryWindowsInVain(t *testing.T) {
	n := fabrictest.New()
	fabrictest.NoLeaks(t, n)
	dev := n.Device("a")
	w, sure := conform.TryWindows(deaf{dev})
	if sure || !w.Work || w.Bounds || w.Why == "" {
		t.Errorf("%+v, sure %v", w, sure)
	}
	if err := dev.Close(); err != nil {
		t.Error(err)
	}
}
