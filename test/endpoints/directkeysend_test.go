package endpoints

import (
	"sync/atomic"
	"testing"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// TestDirectPathKeySend has two hosts lend few elements, so that each asks the other for pools over
// the direct connection. The keys of these pools have to be sent behind the binds of their windows,
// and the pools have to be used.
func TestDirectPathKeySend(t *testing.T) {
	w := newWorld(t)
	w.unit(directly)
	few := func(c *host.Config) {
		c.Messaging.Pools = []messaging.PoolConfig{{ElementSize: 2048, Elements: 2}}
	}
	a, ha, _ := w.host("alpha", makesDirect, few)
	b, hb, _ := w.host("beta", makesDirect, few)
	a.up(t)
	b.up(t)
	keys, granted := map[string]*atomic.Uint64{}, map[string]*host.Host{"alpha": ha, "beta": hb}
	for name := range granted {
		toUnit, n := map[uint32]bool{}, new(atomic.Uint64)
		for _, q := range w.fabric.QueuePairs(name) {
			toUnit[q.Num] = true
		}
		w.fabric.OnSend(name, func(qpn uint32, wr fabric.SendWR) fabric.Status {
			if !toUnit[qpn] && wr.Op == fabric.OpSendImm {
				n.Add(1)
			}
			return fabric.StatusSuccess
		})
		keys[name] = n
	}
	w.newLANSwitch(a.mac, b.mac)
	there, back := newStream(t, a, b), newStream(t, b, a)
	for name, h := range granted {
		testenv.Eventually(t, func() bool {
			c := h.Status().Direct.Connections
			return len(c) == 1 && c[0].Traffic != nil && c[0].Traffic.PoolsGranted > 0
		}, "a pool that %s lends over a direct connection on request", name)
	}
	there.moves(t, 1000)
	back.moves(t, 1000)
	for name, h := range granted {
		if s := h.Status().Direct.Connections[0].Traffic; keys[name].Load() == 0 || s.Channels[0].WindowsBound < 2 {
			t.Errorf("%s has lent %d pools on request, bound %d windows, and sent %d keys behind binds", name, s.PoolsGranted,
				s.Channels[0].WindowsBound, keys[name].Load())
		}
	}
}
