package endpoints

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/host/uplink"
	"github.com/splitnic/splitnic/splitdrv/iounit"
	"github.com/splitnic/splitnic/vnet"
)

// TestFailoverAfterCommandInVain commands a switch to a standby session whose MAC address is no
// longer that of the netdevice, and expects an error. Then the I/O unit is lost: this fail-over
// has to begin at the time of the loss.
func TestFailoverAfterCommandInVain(t *testing.T) {
	w := newWorld(t)
	anyMAC := ruled(t, "default: {macs: any}")
	one, two := w.gateway("one", anyMAC), w.gateway("two", anyMAC)
	d, h, _ := w.host("alpha", func(c *host.Config) { c.IOUnits, c.Standby = addrs(one, two), true })
	d.up(t)
	ready := func() bool { return h.Status().Failovers.Standby == two.cable.addr }
	testenv.Eventually(t, ready, "nothing on standby")
	const changed = "06:00:00:00:00:77"
	_ = d.set(func() { d.mac = changed })
	testenv.Eventually(t, func() bool { return h.Status().Netdevice.MAC == changed }, "the I/O unit does not follow")
	if _, err := h.Failover(t.Context(), two.cable.addr); err == nil || !strings.Contains(err.Error(), changed) {
		t.Fatalf("to a session with another MAC address: %v", err)
	}
	one.both(d) // the first I/O unit is in use as before
	for _, up := range []bool{false, true} {
		_ = d.set(func() { d.want.Up = up })
		testenv.Eventually(t, func() bool { u := one.unit.Status(); return len(u.Hosts) == 1 && u.Hosts[0].Up == up },
			"the I/O unit does not follow any more: up %t", up)
	}
	testenv.Eventually(t, ready, "nothing on standby again")
	begin := time.Now()
	one.cut()
	failedOver(t, h, uplink.ReasonDied, 1)
	if last := h.Status().Failovers.Last; last.At.Before(begin) {
		t.Errorf("it began %v before the I/O unit was lost", begin.Sub(last.At))
	}
	two.both(d)
}

// TestFailoverCommand commands fail-overs to and fro, and expects that the carrier stays.
func TestFailoverCommand(t *testing.T) {
	w := newWorld(t)
	one, two := w.gateway("one"), w.gateway("two")
	d, h, _ := w.host("alpha", func(c *host.Config) { c.IOUnits = addrs(one, two) })
	d.up(t)
	var lost bool
	_ = d.set(func() { d.onCarrier = func(up bool) { lost = lost || !up } })
	one.both(d)
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	for _, to := range []*gateway{two, one, two} {
		f, err := h.Failover(ctx, to.cable.addr)
		if err != nil {
			t.Fatal(err)
		}
		if f.To != to.cable.addr || f.Reason != uplink.ReasonCommand || f.Lost+f.Uncertain != 0 || f.Gap > f.Took {
			t.Errorf("%+v", f)
		}
		to.both(d)
		heard := to.card.announcements()
		mac, _ := net.ParseMAC(d.mac)
		if len(heard) == 0 || !bytes.Equal(heard[0][vnet.HdrLen+6:][:6], mac) {
			t.Errorf("announced: %x", heard)
		}
	}
	if f, err := h.Failover(ctx, ""); err != nil || f.To != one.cable.addr {
		t.Errorf("without an address: %+v, %v", f, err)
	}
	if lost {
		t.Error("the carrier was lost")
	}
	for addr, want := range map[string]string{one.cable.addr: "in use", "10.0.0.99": "not among"} {
		if _, err := h.Failover(ctx, addr); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("to %s: %v", addr, err)
		}
	}
	two.cut()
	if _, err := h.Failover(ctx, ""); err == nil {
		t.Error("went over to an I/O unit that is gone")
	}
	one.both(d) // nothing has changed
	one.cut()
	d.down(t)
	if _, err := h.Failover(ctx, ""); !errors.Is(err, host.ErrNoSession) {
		t.Errorf("without a session: %v", err)
	}
}

// commanded begins a fail-over on command. The channel gets its result.
func commanded(h *host.Host, to string) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := h.Failover(context.Background(), to)
		done <- err
	}()
	return done
}

// soon waits for the end of a fail-over on command and returns its result.
func soon(t *testing.T, done <-chan error) error {
	t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(testenv.Patience):
		t.Fatal("the fail-over on command does not end")
		return nil
	}
}

// TestFailoverBesideStandby commands a switch to the third I/O unit while the host tries to set
// up a standby session with the second, which never answers. The switch must not wait for the
// handshake to time out.
func TestFailoverBesideStandby(t *testing.T) {
	w := newWorld(t)
	deaf, err := net.Listen("tcp", testenv.Loopback()+":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { deaf.Close() })
	one, three := w.gateway("one"), w.gateway("three")
	d, h, _ := w.host("alpha", func(c *host.Config) {
		c.IOUnits, c.Standby, c.HandshakeTimeout, c.Patience = []string{one.cable.addr, deaf.Addr().String(),
			three.cable.addr}, true, time.Hour, 0
	})
	d.up(t)
	c, err := deaf.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := soon(t, commanded(h, three.cable.addr)); err != nil {
		t.Fatal(err)
	}
	with(t, h, three)
	three.both(d)
}

// stuck is a port that hangs when it is set up or down. It closes entered then, and goes on when
// release is closed.
type stuck struct {
	lan.Interface
	entered, release chan struct{}
}

func (s stuck) SetUp(bool) error {
	close(s.entered)
	<-s.release
	return nil
}

// TestFailoverCutShort stops the host during a fail-over on command, from an I/O unit that hangs
// to one without support for standby. The fail-over has to fail.
func TestFailoverCutShort(t *testing.T) {
	s := newScript(t)
	port := stuck{entered: make(chan struct{}), release: make(chan struct{})}
	one := s.world.gateway("one", func(c *iounit.Config) {
		open := c.OpenLAN
		c.OpenLAN = func(mac net.HardwareAddr, queues int) (lan.Interface, error) {
			p, err := open(mac, queues)
			port.Interface = p
			return port, err
		}
	})
	t.Cleanup(func() { close(port.release) })
	d, h, run := s.world.host("alpha", func(c *host.Config) { c.IOUnits = []string{one.cable.addr, s.world.addr} })
	d.up(t)
	_ = d.set(func() { d.want.Up = false })
	<-port.entered // the I/O unit answers no request from now on
	done := commanded(h, s.world.addr)
	s.await("a session on standby asked for", func() bool { return len(s.hellos) == 1 })
	if err := run.stop(); err != nil {
		t.Error(err)
	}
	if err := soon(t, done); err == nil {
		t.Error("it is said to have gone over")
	}
}
