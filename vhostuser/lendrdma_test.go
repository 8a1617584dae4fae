//go:build cgo

package vhostuser

import (
	"testing"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/verbs"
)

// TestRDMALent is a shorter TestLent over RDMA devices, in the default mode and with one
// kind of ring.
func TestRDMALent(t *testing.T) {
	names := testenv.NeedRDMA(t, 2)
	var devices [2]fabric.Device
	for i := range devices {
		c, err := verbs.Open(names[i])
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
		devices[i] = c
	}
	l := newLentOn(t, protocol.ModeImm, devices[0], func() fabric.Device { return devices[1] })
	g := l.driver(modern | featEventIdx)
	g.start(meet(t, l.a)())
	l.connect(nil)
	l.lend(g, 20)
	g.swap()
	l.lend(g, 10)
	g.restartRing(1)
	g.exchange(g.sent)
	l.settled(g)
	if s := l.d.Status(); s.LastError != "" || s.Dropped != 0 || s.Registered < buffersAt || s.NotRegistered != "" {
		t.Errorf("%+v", s)
	}
	for _, c := range l.conns {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if s := l.d.Status(); s.Registered != 0 || l.budget.Used() != 0 {
		t.Errorf("%d bytes are registered, %d taken from the budget", s.Registered, l.budget.Used())
	}
}
