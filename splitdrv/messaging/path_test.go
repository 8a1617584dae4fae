package messaging_test

import (
	"errors"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// provesPath returns the configuration of a side that proves the path MTU.
func provesPath(host bool) messaging.Config {
	return messaging.Config{Bind: messaging.NewBinding([32]byte{7}, host), ProvePath: true}
}

// TestPathDrops has a switch that drops the large packets of one side. No session may begin, and
// the reason must be the path MTU, because small packets get through.
func TestPathDrops(t *testing.T) {
	a, b := provesPath(true), provesPath(false)
	a.PeerTimeout, b.PeerTimeout = 3*time.Second, 200*time.Millisecond
	n, x, y := newStopped(t, a, b)
	n.DropAbove("a", 4095)
	for _, h := range []*endpoint{x, y} {
		if err := h.conn.Start(h.ports); err != nil {
			t.Fatal(err)
		}
	}
	<-y.conn.Done()
	err := y.conn.Err()
	if s := y.conn.Stats(); s.Bound || s.PathProved || s.PathMTU != 4096 {
		t.Errorf("bound: %t, proved: %t, path MTU %d", s.Bound, s.PathProved, s.PathMTU)
	}
	if !errors.Is(err, messaging.ErrPeerSilent) {
		t.Errorf("ended by %v", err)
	}
	testenv.Explained(t, err.Error())
	if s := x.conn.Stats(); s.ControlReceived == 0 {
		t.Error("the other side has not heard this one")
	}
	<-x.conn.Done()
}

// TestPathShrinks lowers the ports' MTU. Sessions with a larger path MTU must end for it, and no
// others.
func TestPathShrinks(t *testing.T) {
	a, b := provesPath(true), provesPath(false)
	a.KeepAlive, b.KeepAlive = 10*time.Millisecond, 10*time.Millisecond
	b.PathMTU = 1024
	n, x, y := newPair(t, patient(a), patient(b))
	n.SetMTU(1024)
	if _, err := x.conn.Request(t.Context(), protocol.CfgKeepAlive, nil); err != nil {
		t.Errorf("the port's MTU is enough: %v", err)
	}
	for _, h := range []*endpoint{x, y} {
		if s := h.conn.Stats(); s.PathMTU != 1024 {
			t.Errorf("%s: path MTU %d", h.name, s.PathMTU)
		}
	}
	n.SetMTU(512)
	for _, h := range []*endpoint{x, y} {
		<-h.conn.Done()
		if err := h.conn.Err(); !errors.Is(err, messaging.ErrPathMTU) {
			t.Errorf("%s ended by %v", h.name, err)
		} else {
			testenv.Explained(t, err.Error())
		}
	}
}
