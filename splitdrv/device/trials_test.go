package device_test

import (
	"errors"
	"testing"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/conform"
	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/splitdrv/device"
)

// TestWindowsOnce expects one trial for each opening of the device, which leaves nothing open.
func TestWindowsOnce(t *testing.T) {
	w := watch(t)
	want := conform.Windows{Work: true, Bounds: true}
	for round := range 2 {
		if got := device.WindowsOf(w.Device); got != want {
			t.Errorf("%+v", got)
		}
		binds := w.net.Counters("a").Binds
		if binds == 0 {
			t.Error("no window was bound")
		}
		if got := w.Windows(); got != want || w.net.Counters("a").Binds != binds {
			t.Errorf("%+v, with %d binds more", got, w.net.Counters("a").Binds-binds)
		}
		if l := w.net.Live(); l != (fabrictest.Live{Devices: l.Devices}) {
			t.Errorf("left open: %+v", l)
		}
		if round > 0 {
			break
		}
		w.net.Remove("a")
		testenv.Eventually(t, func() bool { return w.Status().Gone }, "the loss")
		if got := w.Windows(); got != want {
			t.Errorf("while it is gone: %+v", got)
		}
		w.net.Restore("a")
		testenv.Eventually(t, func() bool { return !w.Status().Gone }, "the device")
		if w.Windows(); w.net.Counters("a").Binds == binds {
			t.Error("not tried again after it has come back")
		}
	}
}

// TestWindowsAgain expects another trial after one that has found out nothing.
func TestWindowsAgain(t *testing.T) {
	w := watch(t)
	w.net.SetMTU(3) // nothing can be connected
	if got := w.Windows(); got.Bounds || got.Why == "" {
		t.Errorf("%+v", got)
	}
	w.net.SetMTU(1024)
	if got, want := w.Windows(), (conform.Windows{Work: true, Bounds: true}); got != want {
		t.Errorf("%+v", got)
	}
}

// TestLateOnce expects that a device whose data comes late is found by one trial, and that nothing is
// known of one that makes no trial, or on which nothing gets through.
func TestLateOnce(t *testing.T) {
	n := fabrictest.New(fabrictest.WithAdapter(fabrictest.Adapter{LateWrites: true}))
	w := watchOn(t, n)
	n.SetMTU(3) // nothing can be connected
	if err := device.Late(w.Device, "it", "do"); err != nil {
		t.Errorf("nothing gets through: %v", err)
	}
	n.SetMTU(1024)
	for range 2 {
		if err := device.Late(w.Device, "it", "do"); !errors.Is(err, device.ErrTransport) {
			t.Errorf("late data: %v", err)
		}
	}
	written := n.Counters("a").Writes
	if w.Late() == "" || n.Counters("a").Writes != written || written == 0 {
		t.Errorf("%d writes, then %d", written, n.Counters("a").Writes)
	}
	if err := device.Late(struct{ fabric.Device }{w.Device}, "it", "do"); err != nil {
		t.Errorf("nobody has tried it: %v", err)
	}
}

// TestClaimedWindows expects of a device that makes no trial what it claims.
func TestClaimedWindows(t *testing.T) {
	n := fabrictest.New(fabrictest.WithAdapter(fabrictest.Adapter{Windows: fabrictest.NoWindowAlloc}))
	dev := n.Device("a")
	defer dev.Close()
	if got := device.WindowsOf(dev); got != (conform.Windows{Work: true, Bounds: true}) {
		t.Errorf("%+v", got)
	}
}

// TestTrialIsNoEvent expects that an event about a queue pair that no session has is not reported:
// the trial of the windows causes such events.
func TestTrialIsNoEvent(t *testing.T) {
	w := watch(t)
	s := w.session()
	w.net.Raise("a", fabric.Event{Type: fabric.EventQPAccessErr, QPN: s.qp.Num() + 1})
	w.net.Raise("a", fabric.Event{Type: fabric.EventPortActive, Port: 1})
	w.heard(fabric.EventPortActive, 1)
	if n := w.Status().Events[fabric.EventQPAccessErr.Key()]; n != 0 || len(s.ended) != 0 {
		t.Errorf("%d events about the queue pair of a trial, %d sessions ended", n, len(s.ended))
	}
}
