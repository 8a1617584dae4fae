package endpoints

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/host/uplink"
	"github.com/splitnic/splitnic/splitdrv/iounit"
	"github.com/splitnic/splitnic/splitdrv/messaging/porttest"
)

// remaining returns the names of the hosts that are left on a draining I/O unit.
func remaining(g *gateway) (names []string) {
	if d := g.unit.Status().Drain; d != nil {
		for i := range d.Remaining {
			names = append(names, d.Remaining[i].Name)
		}
	}
	return names
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	t.Cleanup(cancel)
	return ctx
}

// TestDrain drains an I/O unit. Its host has to go to the second I/O unit and to keep its carrier.
// Another host that prefers the drained I/O unit must not get a session there before Undrain.
func TestDrain(t *testing.T) {
	w := newWorld(t)
	one, two := w.gateway("one"), w.gateway("two")
	d, h, _ := w.host("alpha", func(c *host.Config) { c.IOUnits = addrs(one, two) })
	with(t, h, one)
	d.up(t)
	if s := one.unit.Drain(); len(s.Remaining) != 1 || s.Remaining[0].Name != "alpha" || s.Remaining[0].Stays != "" {
		t.Errorf("%+v", s)
	}
	if err := one.unit.WaitDrained(within(t)); err != nil {
		t.Fatal(err)
	}
	with(t, h, two)
	failedOver(t, h, uplink.ReasonDrain, 1)
	two.both(d)
	if d.lost != 0 {
		t.Errorf("the carrier was lost %d times", d.lost)
	}
	if s := one.unit.Status().Drain; s == nil || s.Since.IsZero() || len(s.Remaining) != 0 {
		t.Errorf("%+v", s)
	}
	_, late, _ := w.host("beta", func(c *host.Config) { c.IOUnits, c.FailBack = addrs(one, two), time.Millisecond })
	with(t, late, two)
	if n := one.unit.Status().Refusals["draining"]; n == 0 {
		t.Error("nobody was refused")
	}
	one.unit.Drain() // again
	one.unit.Undrain()
	with(t, late, one)
	if s := one.unit.Status().Drain; s != nil {
		t.Errorf("%+v", s)
	}
	if err := one.unit.WaitDrained(within(t)); err == nil {
		t.Error("it is waited for an I/O unit that takes hosts")
	}
}

// TestDrainStays drains an I/O unit whose hosts have no other one that they can reach. The hosts
// have to stay and to report the reason, and to leave when there is another I/O unit, or when they
// are disconnected.
func TestDrainStays(t *testing.T) {
	w := newWorld(t)
	one, two := w.gateway("one"), w.gateway("two")
	two.cut()
	d, h, _ := w.host("alpha", func(c *host.Config) { c.IOUnits = addrs(one) })
	b, hb, _ := w.host("beta", func(c *host.Config) { c.IOUnits = addrs(one, two) })
	with(t, h, one)
	with(t, hb, one)
	d.up(t)
	b.up(t)
	why := func(name string) (reason string) {
		for _, r := range one.unit.Drain().Remaining {
			if r.Name == name {
				reason = r.Stays
			}
		}
		return reason
	}
	testenv.Eventually(t, func() bool { return why("alpha") != "" && why("beta") != "" }, "a reason")
	if got := why("alpha"); got != uplink.ErrNoOther.Error() {
		t.Errorf("alpha stays: %s", got)
	}
	if got := why("beta"); !strings.Contains(got, two.cable.addr) || !strings.Contains(got, "connection refused") {
		t.Errorf("beta stays: %s", got)
	}
	if s := h.Status().IOUnit; !s.Drains || s.Stays != uplink.ErrNoOther.Error() {
		t.Errorf("%+v", s)
	}
	one.both(d)
	two.plug()
	with(t, hb, two)
	testenv.Eventually(t, func() bool { return slices.Equal(remaining(one), []string{"alpha"}) }, "beta is left")
	if d.lost+b.lost != 0 {
		t.Errorf("the carrier was lost %d and %d times", d.lost, b.lost)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := one.unit.WaitDrained(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}

	// A host that has stayed keeps its session when draining ends.
	one.unit.Undrain()
	testenv.Eventually(t, func() bool { return !h.Status().IOUnit.Drains }, "the host is not told")
	if n := h.Status().Sessions; n != 1 {
		t.Errorf("%d sessions", n)
	}
	one.unit.Drain()
	testenv.Eventually(t, func() bool { return h.Status().IOUnit.Stays != "" }, "the host is not asked again")

	if err := one.unit.Disconnect(within(t), "alpha"); err != nil {
		t.Fatal(err)
	}
	if err := one.unit.WaitDrained(within(t)); err != nil {
		t.Fatal(err)
	}
	if n := one.unit.Status().Ended["disconnected"]; n != 1 {
		t.Errorf("%d disconnected", n)
	}
	testenv.Eventually(t, func() bool { return strings.Contains(h.Status().LastError, "draining") }, "a refusal")
	testenv.Explained(t, h.Status().LastError)
	if err := one.unit.Disconnect(within(t), "alpha"); !errors.Is(err, iounit.ErrNoHost) {
		t.Errorf("%v", err)
	}
	one.unit.Undrain()
	with(t, h, one)
	d.up(t)
	one.both(d)
}

// TestDisconnect disconnects a host by command. No frame may be lost, and the host has to go to
// the next I/O unit.
func TestDisconnect(t *testing.T) {
	w := newWorld(t)
	one, two := w.gateway("one", unhurried), w.gateway("two", unhurried)
	d, h, _ := w.host("alpha", func(c *host.Config) { c.IOUnits = addrs(one, two) })
	d.up(t)
	if err := one.unit.Disconnect(within(t), "alpha"); err != nil {
		t.Fatal(err)
	}
	with(t, h, two)
	two.both(d)
	failedOver(t, h, uplink.ReasonEnded, 1)
	if s := h.Status().Failovers; s.Uncertain != 0 || s.Lost != 0 {
		t.Errorf("%d frames are uncertain, %d lost", s.Uncertain, s.Lost)
	}
}

// TestDrainStandby drains the I/O unit of a standby session. The host has to get a standby session
// with another I/O unit, and the session in use has to go on.
func TestDrainStandby(t *testing.T) {
	w := newWorld(t)
	one, two, three := w.gateway("one"), w.gateway("two"), w.gateway("three")
	d, h, _ := w.host("alpha", func(c *host.Config) { c.IOUnits, c.Standby = addrs(one, two, three), true })
	with(t, h, one)
	d.up(t)
	standby := func(g *gateway) {
		t.Helper()
		testenv.Eventually(t, func() bool { return h.Status().Failovers.Standby == g.cable.addr }, "not on standby")
	}
	standby(two)
	two.unit.Drain()
	if err := two.unit.WaitDrained(within(t)); err != nil {
		t.Fatal(err)
	}
	standby(three)
	one.unit.Drain()
	with(t, h, three)
	three.both(d)
	if d.lost != 0 || h.Status().Failovers.Count[uplink.ReasonDrain] != 1 {
		t.Errorf("the carrier was lost %d times, %+v", d.lost, h.Status().Failovers)
	}
}

// checkedStream is a stream of numbered frames from a host, received on all cards.
type checkedStream struct {
	d    *netdev
	mac  string
	sent int

	mu   sync.Mutex
	came []bool
}

// send sends frames of all sizes, 200 in a second, until stop is closed.
func (x *checkedStream) send(ctx context.Context, t *testing.T, stop <-chan struct{}) {
	pace := time.NewTicker(5 * time.Millisecond)
	defer pace.Stop()
	for {
		select {
		case <-stop:
			return
		case <-pace.C:
		}
		f := from(t, x.mac, frame(100+x.sent%1300, 2))
		binary.BigEndian.PutUint32(f[len(f)-4:], uint32(x.sent))
		if err := x.d.wire.Send(ctx, f); err != nil {
			t.Error(err)
			return
		}
		x.sent++
	}
}

// collect receives and checks the frames that arrive at a port.
func (x *checkedStream) collect(ctx context.Context, t *testing.T, wire *porttest.Wire) {
	for buf := make([]byte, 1<<16); ; {
		f, err := wire.Receive(ctx, buf)
		if err != nil {
			return
		}
		n := int(binary.BigEndian.Uint32(f[len(f)-4:]))
		x.mu.Lock()
		for len(x.came) <= n {
			x.came = append(x.came, false)
		}
		if x.came[n] || len(f) != 100+n%1300 || f[len(f)-5] != 2 {
			t.Errorf("frame %d of %d bytes came, before: %t", n, len(f), x.came[n])
		}
		x.came[n] = true
		x.mu.Unlock()
	}
}

// missing returns the number of sent frames that have not arrived.
func (x *checkedStream) missing() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := x.sent - len(x.came)
	for _, came := range x.came {
		if !came {
			n++
		}
	}
	return n
}

// frames returns the highest number of a frame that has arrived, plus 1.
func (x *checkedStream) frames() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.came)
}

// TestRollingRestart restarts three I/O units one after the other, each after draining it, while
// 30 hosts send. No host may lose its carrier or a frame, and in the end each has to be at the I/O
// unit that it prefers.
func TestRollingRestart(t *testing.T) {
	const hosts = 30
	w := newWorld(t)
	many := func(c *iounit.Config) {
		unhurried(c)
		c.Policy = rules(t, "default: {max-sessions: 1000}\n") // all have one key
	}
	units := []*gateway{w.gateway("one", many), w.gateway("two", many), w.gateway("three", many)}
	for _, g := range units {
		g.cable.cut() // hosts connect without the cable, to a process that restarts
		g.cable.addr = g.world.addr
	}
	ctx, cancel := context.WithCancel(t.Context())
	var work, senders sync.WaitGroup
	stop := make(chan struct{})
	transfers := make(map[string]*checkedStream) // by MAC address
	var running []*host.Host
	for i := range hosts {
		order := slices.Concat(units[i%3:], units[:i%3])
		d, h, _ := w.host(fmt.Sprintf("h%02d", i), func(c *host.Config) {
			c.IOUnits, c.FailBack = addrs(order...), 100*time.Millisecond
			c.RetryMin, c.RetryMax = 20*time.Millisecond, 200*time.Millisecond
		})
		with(t, h, order[0])
		d.up(t)
		x := &checkedStream{d: d, mac: d.mac}
		transfers[d.mac], running = x, append(running, h)
		wire := order[0].card.wire(d.mac)
		work.Go(func() { x.collect(ctx, t, wire) })
	}
	for _, g := range units {
		g.card.onOpen = func(mac string, wire *porttest.Wire) {
			work.Go(func() { transfers[mac].collect(ctx, t, wire) })
		}
	}
	for _, x := range transfers {
		senders.Go(func() { x.send(ctx, t, stop) })
	}
	more := func(n int) {
		t.Helper()
		before := make(map[*checkedStream]int)
		for _, x := range transfers {
			before[x] = x.frames()
		}
		for x, n0 := range before {
			testenv.Eventually(t, func() bool { return x.frames() >= n0+n }, "no %d frames more", n)
		}
	}
	home := func() {
		t.Helper()
		for i, h := range running {
			with(t, h, units[i%3])
		}
	}
	for i, g := range units {
		more(20)
		if g.unit.Drain(); g.unit.WaitDrained(within(t)) != nil {
			t.Fatalf("unit %d: %+v", i, g.unit.Status().Drain)
		}
		more(20)
		if err := g.run.stop(); err != nil {
			t.Fatal(err)
		}
		g.unit, g.run = g.world.unit(many)
		home()
	}
	more(20)
	close(stop)
	senders.Wait()
	for mac, x := range transfers {
		testenv.Eventually(t, func() bool { return x.missing() == 0 }, "frames of %s are missing", mac)
		if x.d.lost != 0 {
			t.Errorf("%s lost its carrier %d times", mac, x.d.lost)
		}
	}
	for i, h := range running {
		s := h.Status().Failovers
		if s.Count[uplink.ReasonDrain] == 0 || len(s.Count) != 2 || s.Reconnects != 0 || s.Uncertain+s.Lost != 0 {
			t.Errorf("host %d: %+v", i, s)
		}
	}
	cancel()
	work.Wait()
}
