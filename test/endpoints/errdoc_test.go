package endpoints

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/iounit"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/vnet"
)

// failing starts a host that tries once and then waits, and returns the error of its Run or, if it
// goes on, the last error in its status.
func (w *world) failing(t *testing.T, name string, change ...func(*host.Config)) string {
	t.Helper()
	change = append(change, func(c *host.Config) { c.RetryMin, c.RetryMax = time.Minute, time.Minute })
	_, h, r := w.host(name, change...)
	text := ""
	testenv.Eventually(t, func() bool {
		select {
		case err := <-r.done:
			r.once.Do(func() {})
			text = err.Error()
		default:
			text = h.Status().LastError
		}
		return text != ""
	}, "what is wrong with %s", name)
	r.once.Do(func() { // stops the host; the error that Run may return does not matter
		r.cancel()
		<-r.done
	})
	return text
}

// TestErrdocRefused lets an I/O unit refuse hosts because of its flags and its policy, and expects
// that each error is documented.
func TestErrdocRefused(t *testing.T) {
	for _, tc := range []struct {
		name   string
		unit   func(*iounit.Config)
		before int // number of hosts that are connected before
		host   func(*host.Config)
	}{
		{"max hosts", func(c *iounit.Config) { c.MaxHosts = 1 }, 1, func(*host.Config) {}},
		{"max sessions", ruled(t, "default:\n  max-sessions: 1\n"), 1, func(*host.Config) {}},
		{"address of another host", ruled(t, "default: {macs: any}"), 1,
			func(c *host.Config) { c.MAC = protocol.MAC{2, 0, 0, 0, 0, 9} }},
		{"address of the card", func(c *iounit.Config) {
			c.Policy = rules(t, "default: {macs: any}")
			c.LinkState = func() (lan.LinkState, error) {
				return lan.LinkState{Up: true, MTU: 1500, MAC: protocol.MAC{2, 0, 0, 0, 0, 9}}, nil
			}
		}, 0,
			func(c *host.Config) { c.MAC = protocol.MAC{2, 0, 0, 0, 0, 9} }},
		{"address that the policy does not give", ruled(t, "default:\n  macs: 02:aa:*\n"), 0,
			func(c *host.Config) { c.MAC = protocol.MAC{2, 0, 0, 0, 0, 9} }},
		{"address without a policy", func(*iounit.Config) {}, 0,
			func(c *host.Config) { c.MAC = protocol.MAC{2, 0, 0, 0, 0, 9} }},
		{"address that is kept", ruled(t, "default: {macs: any}\nhosts: {gateway: {macs: \"02:00:00:00:00:09\"}}\n"), 0,
			func(c *host.Config) { c.MAC = protocol.MAC{2, 0, 0, 0, 0, 9} }},
		{"no address is free", ruled(t, "default:\n  macs: 02:00:00:00:00:09\n"), 1, func(*host.Config) {}},
		{"mode", func(c *iounit.Config) { c.Modes = []protocol.Mode{protocol.ModeSend} }, 0, func(*host.Config) {}},
		{"memory of a host", ruled(t, "default:\n  max-memory: 4k\n"), 0, func(*host.Config) {}},
		{"memory of all", func(c *iounit.Config) { c.Messaging.Budget = messaging.NewBudget(4096) }, 0,
			func(*host.Config) {}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			w.unit(tc.unit)
			if tc.before > 0 {
				d, _, _ := w.host("alpha", func(c *host.Config) {
					if strings.Contains(tc.name, "address") {
						c.MAC = protocol.MAC{2, 0, 0, 0, 0, 9}
					}
				})
				d.up(t)
			}
			testenv.Explained(t, w.failing(t, "beta", tc.host))
		})
	}
}

// TestErrdocEnds ends sessions in several ways, and expects that the error in the host's status is
// documented.
func TestErrdocEnds(t *testing.T) {
	once := func(c *host.Config) { c.RetryMin, c.RetryMax = time.Minute, time.Minute }
	ended := func(t *testing.T, h *host.Host) {
		t.Helper()
		testenv.Eventually(t, func() bool { return h.Status().LastError != "" }, "the end of the session")
		testenv.Explained(t, h.Status().LastError)
	}
	t.Run("the I O unit stops", func(t *testing.T) {
		w := newWorld(t)
		_, unit := w.unit()
		d, h, _ := w.host("alpha", once)
		d.up(t)
		w.both(d) // both have begun
		if err := unit.stop(); err != nil {
			t.Fatal(err)
		}
		ended(t, h)
	})
	t.Run("two hosts of one name", func(t *testing.T) {
		w := newWorld(t)
		w.unit()
		d, h, _ := w.host("alpha", once)
		d.up(t)
		dev := w.fabric.Device("twin")
		t.Cleanup(func() { dev.Close() })
		d, _, _ = w.host("twin", once, func(c *host.Config) { c.Name = "alpha" })
		d.up(t)
		ended(t, h)
	})
	t.Run("the fabric breaks", func(t *testing.T) {
		w := newWorld(t)
		w.unit()
		d, h, _ := w.host("alpha", once, func(c *host.Config) { c.Messaging.KeepAlive = 10 * time.Millisecond })
		d.up(t)
		w.both(d) // both have begun
		w.fabric.Cut("alpha")
		ended(t, h)
		w.fabric.Heal("alpha")
	})
	t.Run("the I O unit hangs", func(t *testing.T) {
		w := newWorld(t)
		w.unit()
		d, h, _ := w.host("alpha", once, func(c *host.Config) {
			// Longer than a goroutine of the I/O unit has to wait on a busy machine before it hangs.
			c.Messaging.KeepAlive, c.Messaging.PeerTimeout = 10*time.Millisecond, 2*time.Second
		})
		d.up(t)
		w.both(d) // both have begun
		w.fabric.Stall("unit")
		ended(t, h)
		w.fabric.Resume("unit")
	})
	// The endpoint that notices first ends the session for both, so each needs a test of its own.
	hasty := func(c *messaging.Config) {
		c.KeepAlive, c.PeerTimeout = 10*time.Millisecond, 300*time.Millisecond
	}
	t.Run("RDMA does not get through", func(t *testing.T) {
		w := newWorld(t)
		w.unit()
		w.fabric.Stall("unit") // as a firewall does
		_, h, _ := w.host("alpha", once, func(c *host.Config) { hasty(&c.Messaging) })
		ended(t, h)
		w.fabric.Resume("unit")
	})
	t.Run("RDMA does not get through to the I O unit", func(t *testing.T) {
		w := newWorld(t)
		u, _ := w.unit(func(c *iounit.Config) { hasty(&c.Messaging) })
		w.fabric.Stall("unit")
		w.host("alpha", once)
		testenv.Eventually(t, func() bool { return u.Status().Ended["silent"] == 1 },
			"the end of the session at the I/O unit")
		if n := u.Status().Violations; len(n) != 0 {
			t.Errorf("the I/O unit counts %v", n)
		}
		w.fabric.Resume("unit")
	})
	t.Run("the host's device", func(t *testing.T) {
		w := newWorld(t)
		w.unit()
		d, h, _ := w.host("alpha", once, func(c *host.Config) { c.Messaging.KeepAlive = 10 * time.Millisecond })
		d.up(t)
		w.both(d) // both have begun
		w.fabric.Kill("alpha")
		ended(t, h)
	})
}

// TestErrdocSettings lets settings of a netdevice be refused, and expects that each refusal is
// documented.
func TestErrdocSettings(t *testing.T) {
	for _, status := range []protocol.CfgStatus{protocol.CfgDenied, protocol.CfgFailed, protocol.CfgInvalid} {
		t.Run(status.String(), func(t *testing.T) {
			s := newScript(t)
			d, h := s.followed()
			s.refuses(status, is(protocol.CfgMTU))
			_ = d.SetMTU(8000)
			d.await(t, "the old MTU", func() bool { return d.mtu == 1500 })
			s.gets("mtu 8000")
			r := h.Status().LastRefusal
			if r == nil {
				t.Fatal("no refusal")
			}
			testenv.Explained(t, strings.Join([]string{r.What, r.Wanted, r.Reason}, " "))
		})
	}
	t.Run("denied by a key of the policy", func(t *testing.T) {
		s := newScript(t)
		d, h := s.followed()
		before := d.mac
		s.refuses(protocol.CfgDenied, is(protocol.CfgMAC))
		_ = d.SetMAC(net.HardwareAddr{2, 0, 0, 0, 0, 9})
		d.await(t, "the old address", func() bool { return d.mac == before })
		testenv.Eventually(t, func() bool { return h.Status().LastRefusal != nil }, "a refusal")
		r := h.Status().LastRefusal
		testenv.Explained(t, strings.Join([]string{r.What, r.Wanted, r.Reason}, " "))
		if !strings.Contains(r.Reason, "`macs`") {
			t.Errorf("%+v", r)
		}
	})
	t.Run("more than max-mtu", func(t *testing.T) {
		s := newScript(t)
		d, h := s.followed()
		_ = d.SetMTU(9001)
		d.await(t, "the old MTU", func() bool { return d.mtu == 1500 })
		testenv.Eventually(t, func() bool { return h.Status().LastRefusal != nil }, "a refusal")
		r := h.Status().LastRefusal
		testenv.Explained(t, strings.Join([]string{r.What, r.Wanted, r.Reason}, " "))
	})
}

// TestErrdocCommands gives hosts commands that they cannot carry out, and expects that each error
// is documented.
func TestErrdocCommands(t *testing.T) {
	dead := func(t *testing.T) string {
		t.Helper()
		ln, err := net.Listen("tcp", testenv.Loopback()+":0")
		if err != nil {
			t.Fatal(err)
		}
		ln.Close()
		return ln.Addr().String()
	}
	for _, tc := range []struct {
		name  string
		units func(t *testing.T, up string) []string
		do    func(ctx context.Context, h *host.Host, up string) error
	}{
		{"no other I O unit", func(_ *testing.T, up string) []string { return []string{up} },
			func(ctx context.Context, h *host.Host, _ string) error { _, err := h.Failover(ctx, ""); return err }},
		{"none of these", func(t *testing.T, up string) []string { return []string{up, dead(t)} },
			func(ctx context.Context, h *host.Host, _ string) error {
				_, err := h.Failover(ctx, "192.0.2.9")
				return err
			}},
		{"the one in use", func(t *testing.T, up string) []string { return []string{up, dead(t)} },
			func(ctx context.Context, h *host.Host, up string) error { _, err := h.Failover(ctx, up); return err }},
		{"unreachable", func(t *testing.T, up string) []string { return []string{up, dead(t)} },
			func(ctx context.Context, h *host.Host, _ string) error { _, err := h.Failover(ctx, ""); return err }},
		{"fail over without a session", func(t *testing.T, _ string) []string { return []string{dead(t), dead(t)} },
			func(ctx context.Context, h *host.Host, _ string) error { _, err := h.Failover(ctx, ""); return err }},
		{"counters without a session", func(t *testing.T, _ string) []string { return []string{dead(t)} },
			func(ctx context.Context, h *host.Host, _ string) error {
				_, err := h.Statistics(ctx, false)
				return err
			}},
		{"reset without a session", func(t *testing.T, _ string) []string { return []string{dead(t)} },
			func(ctx context.Context, h *host.Host, _ string) error { return h.Reset(ctx) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			w.unit()
			units := tc.units(t, w.addr)
			d, h, _ := w.host("alpha", func(c *host.Config) { c.IOUnits = units })
			if units[0] == w.addr {
				d.up(t)
				w.both(d) // both have begun
			}
			err := tc.do(t.Context(), h, w.addr)
			if err == nil {
				t.Fatal("no error")
			}
			// As the program that gives the command prints it.
			testenv.Explained(t, "command: sn0: "+err.Error())
		})
	}
}

// TestErrdocPolicy changes the policy so that a session cannot go on, and expects that the error
// is documented.
func TestErrdocPolicy(t *testing.T) {
	w := newWorld(t)
	u, _ := w.unit()
	d, h, _ := w.host("alpha", func(c *host.Config) { c.RetryMin, c.RetryMax = time.Minute, time.Minute })
	d.up(t)
	w.both(d) // both have begun
	u.SetPolicy(rules(t, "default:\n  modes: send\n"))
	testenv.Eventually(t, func() bool { return h.Status().LastError != "" }, "the end of the session")
	testenv.Explained(t, h.Status().LastError)
}

// begun is a LAN interface that calls tell when its queue is taken into use.
type begun struct {
	lan.Interface
	tell func()
}

func (b begun) Queues() []lan.Queue { return []lan.Queue{begunQueue{b.Interface.Queues()[0], b.tell}} }

type begunQueue struct {
	lan.Queue
	tell func()
}

func (q begunQueue) FD() int {
	q.tell()
	return q.Queue.FD()
}

// TestPolicyAsFramesBegin changes the policy just when the first frames can move. The new policy
// has to apply to the session, which has to go on as far as the policy permits it.
func TestPolicyAsFramesBegin(t *testing.T) {
	w := newWorld(t)
	var u *iounit.Unit
	var once sync.Once
	ended := make(chan int, 1)
	u, _ = w.unit(func(c *iounit.Config) {
		open := c.OpenLAN
		c.OpenLAN = func(mac net.HardwareAddr, queues int) (lan.Interface, error) {
			p, err := open(mac, queues)
			return begun{p, func() { once.Do(func() { ended <- u.SetPolicy(rules(t, "default:\n  vlans: 7\n")) }) }}, err
		}
	})
	d, h, _ := w.host("alpha")
	d.up(t)
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	tagged := frame(100, 1)
	copy(tagged[vnet.HdrLen+12:], []byte{0x81, 0, 0, 8, 0x08, 0x00})
	if err := d.wire.Send(ctx, tagged); err != nil {
		t.Fatal(err)
	}
	w.both(d) // the tagged frame does not arrive
	if n := <-ended; n != 0 {
		t.Errorf("%d sessions were to end", n)
	}
	if st := h.Status(); st.Sessions != 1 || st.LastError != "" {
		t.Errorf("%d sessions: %s", st.Sessions, st.LastError)
	}
}
