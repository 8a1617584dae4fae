package endpoints

import (
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/host/discovery"
	"github.com/splitnic/splitnic/splitdrv/host/uplink"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// zone is a DNS zone whose records a test changes.
type zone struct {
	mu      sync.Mutex
	records []discovery.Record
	err     error
}

func (z *zone) lookup(context.Context, string) (discovery.Answer, error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	return discovery.Answer{Records: z.records}, z.err
}

func (z *zone) fail(err error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.err = err
}

// list sets the zone to these I/O units, each with a lower priority than the one before it.
func (z *zone) list(t *testing.T, gateways ...*gateway) {
	t.Helper()
	z.mu.Lock()
	defer z.mu.Unlock()
	z.records, z.err = nil, nil
	for i, g := range gateways {
		target, port, err := net.SplitHostPort(g.cable.addr)
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			t.Fatal(err)
		}
		z.records = append(z.records, discovery.Record{Priority: uint16(i), Port: uint16(n), Target: target})
	}
}

// configure lets a host find its I/O units in the zone, with short intervals between lookups.
func (z *zone) configure(c *host.Config) {
	c.IOUnits = []string{"srv:_splitnic._tcp.fabric.example"}
	c.Discovery = discovery.Settings{
		Lookup: z.lookup, Shortest: 5 * time.Millisecond, RetryMin: 5 * time.Millisecond, RetryMax: 10 * time.Millisecond,
	}
}

// lists waits until the host knows these I/O units.
func lists(t *testing.T, h *host.Host, gateways ...*gateway) {
	t.Helper()
	testenv.Eventually(t, func() bool { return slices.Equal(h.Status().IOUnit.Candidates, addrs(gateways...)) },
		"the host does not know %v", addrs(gateways...))
}

// TestFoundByDNS removes I/O units from the zone, in use or not, and adds I/O units. No session
// may end by this, and the next session has to be with an I/O unit in the zone.
func TestFoundByDNS(t *testing.T) {
	w := newWorld(t)
	one, two, three := w.gateway("one"), w.gateway("two"), w.gateway("three")
	var z zone
	z.list(t, one, two)
	d, h, _ := w.host("alpha", z.configure)
	with(t, h, one)
	d.up(t)
	s := h.Status().IOUnit
	if len(s.DNS) != 1 || s.DNS[0].Units != 2 || s.DNS[0].Error != "" || !slices.Equal(s.Candidates, addrs(one, two)) ||
		s.Configured[0] != "srv:_splitnic._tcp.fabric.example" {
		t.Errorf("%+v", s)
	}
	z.list(t, three, two)
	lists(t, h, three, two)
	one.both(d)
	if n := h.Status().Sessions; n != 1 || d.losses() != 0 {
		t.Errorf("%d sessions, carrier lost %d times", n, d.losses())
	}
	one.cut()
	with(t, h, three)
	failedOver(t, h, uplink.ReasonDied, 1)
	one.plug()
	three.cut()
	with(t, h, two)
	two.cut()
	d.down(t)
	z.list(t, one)
	with(t, h, one)
}

// TestDNSFails lets DNS fail during a session. The session has to go on; when it ends, the host
// has to try the I/O units that it knew.
func TestDNSFails(t *testing.T) {
	w := newWorld(t)
	one, two := w.gateway("one"), w.gateway("two")
	var z zone
	z.list(t, one, two)
	d, h, _ := w.host("alpha", z.configure)
	with(t, h, one)
	d.up(t)
	broken := errors.New("broken")
	z.fail(broken)
	testenv.Eventually(t, func() bool {
		s := h.Status().IOUnit.DNS[0]
		return s.Error == broken.Error() && s.Failures > 3
	}, "the failure is not in the status")
	one.both(d)
	if s := h.Status(); s.Sessions != 1 || d.losses() != 0 || s.LastError != "" {
		t.Errorf("carrier lost %d times, %+v", d.losses(), s)
	}
	one.cut()
	with(t, h, two)
	two.both(d)
}

// TestDNSFailsAtTheStart has a DNS that fails from the start: the status has to show the reason,
// and the host has to repeat its lookups.
func TestDNSFailsAtTheStart(t *testing.T) {
	w := newWorld(t)
	one := w.gateway("one")
	broken := errors.New("broken")
	z := zone{err: broken}
	d := newNetdev(t)
	_ = d.set(func() { d.carrier = true })
	_, h, _ := w.host("alpha", z.configure, func(c *host.Config) { c.Netdev, c.History = d, host.History{Carrier: true} })
	testenv.Eventually(t, func() bool { return h.Status().LastError == broken.Error() }, "the reason is not in the status")
	if s := h.Status(); s.State != host.Connecting || s.IOUnit.Address != "" || s.IOUnit.Candidates != nil {
		t.Errorf("%+v", s)
	}
	testenv.Eventually(t, func() bool { return !h.Status().Netdevice.Carrier }, "it keeps the carrier from before")
	d.down(t)
	if _, err := h.Failover(t.Context(), ""); !errors.Is(err, host.ErrNoSession) {
		t.Errorf("going over to nobody: %v", err)
	}
	z.list(t, one)
	with(t, h, one)
	if s := h.Status(); s.LastError != "" || s.IOUnit.DNS[0].Error != "" {
		t.Errorf("%+v", s)
	}
}

// TestDNSIsNotTrusted has a zone with an I/O unit whose key the host does not trust. The host must
// never use it, but the I/O unit after it.
func TestDNSIsNotTrusted(t *testing.T) {
	w := newWorld(t)
	one := w.gateway("one")
	own := w.unitKey
	var err error
	if w.unitKey, err = session.GenerateKey(); err != nil {
		t.Fatal(err)
	}
	stranger := w.gateway("stranger")
	w.unitKey = own
	var z zone
	z.list(t, stranger)
	d, h, _ := w.host("alpha", z.configure)
	testenv.Eventually(t, func() bool {
		return strings.Contains(h.Status().LastError, "not trusted here") && len(stranger.unit.Status().Hosts) == 0
	}, "the stranger is not refused")
	z.list(t, stranger, one)
	with(t, h, one)
	d.up(t)
	one.both(d)
}

// TestStopWithoutDNS stops a host that knows no I/O unit.
func TestStopWithoutDNS(t *testing.T) {
	w := newWorld(t)
	z := zone{err: errors.New("broken")}
	_, h, run := w.host("alpha", z.configure)
	testenv.Eventually(t, func() bool { return h.Status().LastError != "" }, "DNS is not asked")
	if err := run.stop(); err != nil {
		t.Error(err)
	}
}

// TestFailBackByDNS changes the zone of a host with fail-back. The host has to switch to a new
// I/O unit that it prefers, and away from one that is no longer in the zone, each time without
// losing the carrier.
func TestFailBackByDNS(t *testing.T) {
	w := newWorld(t)
	one, two := w.gateway("one"), w.gateway("two")
	var z zone
	z.list(t, two)
	d, h, _ := w.host("alpha", z.configure, func(c *host.Config) { c.FailBack = time.Millisecond })
	with(t, h, two)
	d.up(t)
	z.list(t, one, two)
	with(t, h, one)
	failedOver(t, h, uplink.ReasonFailBack, 1)
	one.both(d)
	z.list(t, two)
	with(t, h, two)
	failedOver(t, h, uplink.ReasonFailBack, 2)
	two.both(d)
	if n := d.losses(); n != 0 {
		t.Errorf("the carrier was lost %d times", n)
	}
}

// TestStandbyByDNS changes the zone of a host with a standby session, and expects that this
// session is always with the next I/O unit of the zone.
func TestStandbyByDNS(t *testing.T) {
	w := newWorld(t)
	one, two, three := w.gateway("one"), w.gateway("two"), w.gateway("three")
	var z zone
	z.list(t, one, two, three)
	_, h, _ := w.host("alpha", z.configure, func(c *host.Config) { c.Standby = true })
	ready := func(s *gateway) {
		t.Helper()
		want := ""
		if s != nil {
			want = s.cable.addr
		}
		testenv.Eventually(t, func() bool { return h.Status().Failovers.Standby == want }, "%q is not on standby", want)
	}
	with(t, h, one)
	ready(two)
	z.list(t, one, three)
	ready(three)
	z.list(t, one)
	ready(nil)
	z.list(t, one, two)
	ready(two)
	testenv.Eventually(t, func() bool { return len(three.unit.Status().Hosts) == 0 },
		"a session on standby is left behind")
}

// TestDrainByDNS drains the only I/O unit of a zone. Its host has to stay until there is another
// I/O unit, and to go there without losing the carrier.
func TestDrainByDNS(t *testing.T) {
	w := newWorld(t)
	one, two := w.gateway("one"), w.gateway("two")
	var z zone
	z.list(t, one)
	d, h, _ := w.host("alpha", z.configure)
	with(t, h, one)
	d.up(t)
	one.unit.Drain()
	testenv.Eventually(t, func() bool { return h.Status().IOUnit.Stays == uplink.ErrNoOther.Error() }, "no reason to stay")
	z.list(t, one, two)
	with(t, h, two)
	failedOver(t, h, uplink.ReasonDrain, 1)
	two.both(d)
	if n := d.losses(); n != 0 {
		t.Errorf("the carrier was lost %d times", n)
	}
}
