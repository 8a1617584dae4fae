package endpoints

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/splitdrv/direct"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// greet sends a frame from a to b.
func greet(t *testing.T, a, b *netdev) {
	t.Helper()
	if err := a.wire.Send(t.Context(), numbered(t, a, b, 1)); err != nil {
		t.Fatal(err)
	}
}

// connectedTo returns the sorted names of the hosts with which h has established direct
// connections.
func connectedTo(h *host.Host) (names []string) {
	for _, c := range h.Status().Direct.Connections {
		if c.State == direct.Established {
			names = append(names, c.Peer)
		}
	}
	slices.Sort(names)
	return names
}

// drains receives and discards all frames that arrive at a netdevice, until the test ends.
func drains(t *testing.T, d *netdev) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 1<<17)
		for {
			if _, err := d.wire.Receive(ctx, buf); err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
}

// TestDirectPathMemory has one peer more than a host may have direct connections. The least
// recently used connection has to end. The default number of connections has to fit into the
// default of --direct-memory.
func TestDirectPathMemory(t *testing.T) {
	const peers, most, memory = 4, 64, 512 << 20
	w := newWorld(t)
	w.unit(directly, ruled(t, "default: {max-sessions: 16}"))
	budget := messaging.NewBudget(memory)
	a, ha, _ := w.host("alpha", makesDirect, func(c *host.Config) { c.Direct.Budget, c.Direct.Peers = budget, peers })
	a.up(t)
	drains(t, a)
	var names []string
	for i := range peers + 1 {
		names = append(names, fmt.Sprintf("peer%d", i))
	}
	for i, b := range w.newPeers(a, names...) {
		want := names[max(0, i+1-peers) : i+1]
		testenv.Eventually(t, func() bool {
			greet(t, a, b) // the I/O unit samples frames
			return slices.Equal(connectedTo(ha), want)
		}, "direct connections with %s", want)
	}
	testenv.Eventually(t, func() bool { return len(ha.Status().Direct.Connections) == peers }, "the end of the first")
	one := budget.Used() / peers
	t.Logf("a direct connection has %.2f MiB", float64(one)/(1<<20))
	if one == 0 || most*one > memory {
		t.Errorf("%d direct connections have %d bytes each, of %d", most, one, memory)
	}
}

// TestDirectPathScarce has a host with memory for one direct connection: the attempt at a second
// one has to end, and the first has to stay.
func TestDirectPathScarce(t *testing.T) {
	const memory = 6 << 20
	w := newWorld(t)
	w.unit(directly, ruled(t, "default: {max-sessions: 16}"))
	budget := messaging.NewBudget(memory)
	a, ha, _ := w.host("alpha", makesDirect, func(c *host.Config) { c.Direct.Budget = budget })
	a.up(t)
	drains(t, a)
	others := w.newPeers(a, "first", "second")
	first := []string{"first"}
	testenv.Eventually(t, func() bool {
		greet(t, a, others[0])
		return slices.Equal(connectedTo(ha), first)
	}, "a direct connection")
	ended := ha.Status().Direct.Total.Ended
	testenv.Eventually(t, func() bool {
		greet(t, a, others[1])
		return ha.Status().Direct.Total.Ended > ended
	}, "the end of a second one")
	if used, c := budget.Used(), connectedTo(ha); used > memory || !slices.Equal(c, first) {
		t.Errorf("%d bytes are registered, of %d; connections with %s", used, memory, c)
	}
}

// newPeers starts hosts that make direct connections, on one LAN with host a.
func (w *world) newPeers(a *netdev, names ...string) (all []*netdev) {
	w.t.Helper()
	macs := []string{a.mac}
	for _, name := range names {
		b, _, _ := w.host(name, makesDirect)
		b.up(w.t)
		drains(w.t, b)
		all, macs = append(all, b), append(macs, b.mac)
	}
	w.newLANSwitch(macs...)
	return all
}
