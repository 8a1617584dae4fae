package endpoints

import (
	"fmt"
	"net"
	"testing"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/iounit"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/messaging/cq"
	"github.com/splitnic/splitnic/splitdrv/messaging/porttest"
	"github.com/splitnic/splitnic/tap/steer"
)

// steered is a netdevice with several queues. Steering succeeds unless fail is set.
type steered struct {
	*netdev
	ports []messaging.Port
	wires []*porttest.Wire
	rule  *steer.Rule // guarded by netdev.mu
	fail  error
}

func newSteered(t *testing.T, queues int) *steered {
	d := &steered{netdev: newNetdev(t)}
	for range queues {
		p, w := porttest.New(t, 1<<20)
		d.ports, d.wires = append(d.ports, porttest.Batched{Single: p}), append(d.wires, w)
	}
	return d
}

func (d *steered) Ports() []messaging.Port { return d.ports }

func (d *steered) Steer(r *steer.Rule) error {
	if r != nil && d.fail != nil {
		return d.fail
	}
	return d.set(func() { d.rule = r })
}

// manyQueues is a port on the card with several queues.
type manyQueues struct {
	*lanPort
	queues []lan.Queue
	wires  []*porttest.Wire
}

func (p *manyQueues) Queues() []lan.Queue { return p.queues }

// latencyCard opens ports with as many queues as requested, and remembers the last port and its
// rule.
type latencyCard struct {
	w    *world
	t    *testing.T
	fail error // error for ports with a latency queue
	port *manyQueues
	rule *steer.Rule
}

func (c *latencyCard) open(mac net.HardwareAddr, queues int) (lan.Interface, error) {
	port, err := c.w.card.open(mac, queues)
	if err != nil {
		return nil, err
	}
	m := &manyQueues{lanPort: port.(*lanPort)}
	for range queues {
		p, w := porttest.New(c.t, 1<<20)
		m.queues, m.wires = append(m.queues, lanQueue{p}), append(m.wires, w)
	}
	c.port, c.rule = m, nil
	return m, nil
}

func (c *latencyCard) openLatency(mac net.HardwareAddr, rule steer.Rule) (lan.Interface, error) {
	if c.fail != nil {
		return nil, c.fail
	}
	port, err := c.open(mac, rule.Queues)
	c.rule = &rule
	return port, err
}

// TestLatencyChannel gives each endpoint what a latency channel requires, or not. There has to be
// one if both endpoints can have it, and frames have to cross on all channels in any case.
func TestLatencyChannel(t *testing.T) {
	refused := fmt.Errorf("%w: in this test", steer.ErrUnavailable)
	classes := steer.DefaultClasses()
	for _, tc := range []struct {
		name            string
		host, unit      bool  // whether this endpoint is configured for one
		hostErr, lanErr error // errors of steering
		wanted, granted int   // queues of the netdevice, and of the I/O unit for each host
		queues          int   // data channels
		latency         bool
	}{
		{"both", true, true, nil, nil, 3, 4, 3, true},
		{"fewer queues granted", true, true, nil, nil, 4, 1, 2, true},
		{"host only", true, false, nil, nil, 3, 4, 3, false},
		{"I/O unit only", false, true, nil, nil, 3, 4, 3, false},
		{"the host's kernel refuses", true, true, refused, nil, 3, 4, 3, false},
		{"the I/O unit's kernel refuses", true, true, nil, refused, 3, 4, 3, false},
		{"the I/O unit's kernel refuses, fewer queues", true, true, nil, refused, 3, 2, 2, false},
		{"as many as there can be", true, true, nil, nil, cq.MaxQueues, cq.MaxQueues, cq.MaxQueues,
			true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			c := &latencyCard{w: w, t: t, fail: tc.lanErr}
			u, _ := w.unit(func(cfg *iounit.Config) {
				cfg.OpenLAN, cfg.OpenLatencyLAN, cfg.MaxQueues = c.open, c.openLatency, tc.granted
				if tc.unit {
					cfg.Latency = &steer.Classes{DSCP: 1 << 5}
				}
			})
			d := newSteered(t, tc.wanted)
			d.fail = tc.hostErr
			_, h, _ := w.host("alpha", func(cfg *host.Config) {
				cfg.Netdev, cfg.MaxMTU = d, 4000
				if tc.host {
					cfg.Latency = &classes
				}
			})
			d.up(t)
			testenv.Eventually(t, func() bool { return len(u.Status().Hosts) == 1 }, "no host")
			hs, us := h.Status(), u.Status().Hosts[0]
			limit := messaging.LatencyLimit(4000)
			for name, traffic := range map[string]*messaging.Stats{"host": hs.Traffic, "I/O unit": us.Traffic} {
				if len(traffic.Channels) != tc.queues {
					t.Fatalf("%s: %d data channels", name, len(traffic.Channels))
				}
				for i, ch := range traffic.Channels {
					if ch.Latency != (tc.latency && i == tc.queues-1) {
						t.Errorf("%s: data channel %d of %d: latency %t", name, i+1, tc.queues, ch.Latency)
					}
				}
			}
			if d.active != tc.queues {
				t.Errorf("%d queues are active", d.active)
			}
			if tc.latency {
				want := steer.Rule{Classes: classes, Queues: tc.queues, Limit: limit}
				if d.rule == nil || *d.rule != want {
					t.Errorf("the host steers by %+v", d.rule)
				}
				want.DSCP = 1 << 5
				if c.rule == nil || *c.rule != want {
					t.Errorf("the I/O unit steers by %+v", c.rule)
				}
			} else if d.rule != nil || c.rule != nil {
				t.Errorf("steering by %+v and %+v", d.rule, c.rule)
			}
			for name, s := range map[string]*steer.Status{"host": hs.Latency, "I/O unit": us.Latency} {
				switch {
				case s == nil:
					if tc.host && (name == "host" || tc.hostErr == nil) {
						t.Errorf("%s: no status", name)
					}
				case s.On != tc.latency || (s.Reason == "") != tc.latency:
					t.Errorf("%s: %+v", name, s)
				case s.On && s.Limit != limit:
					t.Errorf("%s: frames up to %d bytes", name, s.Limit)
				}
			}
			for i := range tc.queues {
				// the size also determines the other address of a frame
				crosses(t, d.wires[i], c.port.wires[i], from(t, d.mac, frame(300+2*i, byte(300+2*i))))
				crosses(t, c.port.wires[i], d.wires[i], frame(100+2*i, byte(100+2*i)))
			}
		})
	}
}

// TestLatencyRefused configures hosts and I/O units with what does not permit a latency queue, and
// expects errors.
func TestLatencyRefused(t *testing.T) {
	w := newWorld(t)
	good, bad := steer.DefaultClasses(), steer.Classes{Size: -1}
	base := host.Config{Name: "x", IOUnits: []string{"127.0.0.1"}, Log: quiet()}
	one, two := newSteered(t, 1), newSteered(t, 2)
	for i, change := range []func(*host.Config){
		func(c *host.Config) { c.Netdev, c.Latency = one, &good },
		func(c *host.Config) { c.Netdev, c.Latency = struct{ host.Netdevice }{two}, &good },
		func(c *host.Config) { c.Netdev, c.Latency = two, &bad },
	} {
		cfg := base
		change(&cfg)
		if _, err := host.New(cfg); err == nil {
			t.Errorf("host %d is accepted", i)
		}
	}
	dev := w.fabric.Device("x")
	defer dev.Close()
	open := func(net.HardwareAddr, steer.Rule) (lan.Interface, error) { return nil, nil }
	for i, cfg := range []iounit.Config{
		{Latency: &good},
		{Latency: &bad, OpenLatencyLAN: open},
	} {
		cfg.Device, cfg.OpenLAN, cfg.LinkState = dev, w.card.open, w.card.link
		if _, err := iounit.New(cfg); err == nil {
			t.Errorf("I/O unit %d is accepted", i)
		}
	}
}
