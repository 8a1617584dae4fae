package iounit

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/iounit/policy"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// parsed returns the policy with this text.
func parsed(t *testing.T, text string) *policy.Policy {
	t.Helper()
	p, err := policy.Parse("test", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestGovernVLANs changes the VLANs that a host may use during its session.
func TestGovernVLANs(t *testing.T) {
	c := newClient(t, hostWith("5,10-19"))
	govern := func(may *policy.Host, vlans string) {
		t.Helper()
		if err := c.s.govern(may, protocol.ModeImm); err != nil {
			t.Fatal(err)
		}
		if now, _ := c.s.current(); now.vlans.String() != vlans || c.s.guard.Rules().Receive.String() != vlans ||
			c.s.guard.Rules().Host != may {
			t.Errorf("the host gets VLANs %v, by the rules %v, not %s", now.vlans, c.s.guard.Rules().Receive, vlans)
		}
	}
	govern(hostWith("5-12"), "5-12") // the host wants all allowed VLANs
	c.vlans("6,7", protocol.CfgOK)
	govern(hostWith("7-12"), "7")
	govern(hostWith("none"), "none")
	govern(hostWith("all"), "6-7") // the host still wants both
	c.vlans("100", protocol.CfgOK)
	c.ask("reset", protocol.CfgReset, nil, protocol.CfgOK)
	if now, _ := c.s.current(); now.vlans != protocol.AllVLANs() {
		t.Errorf("after a reset the host gets %v", now.vlans)
	}
}

// TestGovernSource changes the source addresses that frames of a host may have.
func TestGovernSource(t *testing.T) {
	c := newClient(t, hostWith("all"))
	behind := protocol.MAC{2, 0xbb, 0, 0, 0, 1}
	judge := func(want bool) {
		t.Helper()
		if got := c.passes(frame(broadcast, behind, 60)); got != want {
			t.Errorf("a frame of %v passes: %t, want %t", behind, got, want)
		}
	}
	judge(true)
	for _, tt := range []struct {
		macs []string
		want bool
	}{{[]string{own.String()}, false}, {[]string{own.String(), "02:bb:*"}, true}, {nil, true}} {
		if err := c.s.govern(hostWith("all", tt.macs...), protocol.ModeImm); err != nil {
			t.Fatal(err)
		}
		judge(tt.want)
	}
}

// TestGovernRates limits a host's rates during its session, changes the limits and removes them.
func TestGovernRates(t *testing.T) {
	c := newClient(t, hostWith("all"))
	big := frame(own, other, 60000)
	rates := func(tx, rx int64) *policy.Host {
		h := hostWith("all")
		h.MaxTxRate, h.MaxRxRate = tx, rx
		return h
	}
	// try writes and reads frames, and returns for how long each direction is held back.
	try := func() (tx, rx time.Duration) {
		t.Helper()
		p := c.s.guard.Ports()[0].(messaging.PacedPort)
		c.port.queue.In = slices.Repeat([][]byte{big}, 3)
		for range 3 {
			_ = write(c.s.guard.Ports()[0], superFrame(60000-54, 1400))
			_, _ = read(c.s.guard.Ports()[0])
		}
		return p.WriteHold(), p.ReadHold()
	}
	if tx, rx := try(); tx != 0 || rx != 0 {
		t.Errorf("without a bound held back for %v and %v", tx, rx)
	}
	// about reports whether got is about the time of 60,000 bytes, give or take one frame.
	about := func(got time.Duration, rate int64) bool {
		most := time.Duration(60000 * 8 * int64(time.Second) / rate)
		return got > 0 && got <= most && (rate > 10e6 || got > most/2)
	}
	for _, r := range [][2]int64{{200e3, 0}, {0, 300e3}, {200e3, 200e3}, {100e3, 500e3}, {1e12, 1e12}, {150e3, 150e3},
		{0, 0}} {
		if err := c.s.govern(rates(r[0], r[1]), protocol.ModeImm); err != nil {
			t.Fatal(err)
		}
		if now := c.s.may(); now.MaxTxRate != r[0] || now.MaxRxRate != r[1] {
			t.Errorf("in force are %d and %d", now.MaxTxRate, now.MaxRxRate)
		}
		// A bucket passes a frame as soon as it has one bit.
		testenv.Eventually(t, func() bool {
			tx, rx := try()
			return (r[0] == 0 || r[0] == 1e12) == (tx == 0) && (r[0] == 0 || tx == 0 || about(tx, r[0])) &&
				(r[1] == 0 || r[1] == 1e12) == (rx == 0) && (r[1] == 0 || rx == 0 || about(rx, r[1]))
		}, "held back as by rates of %d and %d", r[0], r[1])
		// Nothing else removes or replaces a limit.
		before := c.s.guard.Rules().Account
		c.vlans("5", protocol.CfgOK)
		c.ask("reset", protocol.CfgReset, nil, protocol.CfgOK)
		if now := c.s.guard.Rules().Account; now != before {
			t.Errorf("after a reset the rates are bounded by %v, before by %v", now, before)
		}
	}
}

// TestGovernConflicts changes the policy so that it forbids something that a host has. The session
// must end only if the host uses it and it cannot be withdrawn otherwise.
func TestGovernConflicts(t *testing.T) {
	base := func(change func(h *policy.Host)) *policy.Host {
		h := hostWith("all")
		h.Promiscuous, h.MaxMemory = true, 64<<20
		change(h)
		return h
	}
	nothing := func(*policy.Host) {}
	for _, tt := range []struct {
		name   string
		before func(c *client)
		change func(h *policy.Host)
		ends   bool
	}{
		{"nothing", func(*client) {}, nothing, false},
		{"its address", func(*client) {}, func(h *policy.Host) {
			h.AnyMAC, h.OwnMAC, h.MACs = false, false,
				hostWith("all", "02:55:*").MACs
		}, true},
		{"a further address", func(c *client) {
			c.filter(protocol.ReceiveFilter{Unicast: []protocol.MAC{machine}}, protocol.CfgOK)
		}, func(h *policy.Host) {
			h.AnyMAC, h.OwnMAC, h.MACs = false, false, hostWith("all", own.String()).MACs
		}, true},
		{"an address that it does not use", func(*client) {},
			func(h *policy.Host) {
				h.AnyMAC, h.OwnMAC, h.MACs = false, false, hostWith("all", own.String()).MACs
			}, false},
		{"its mode", func(*client) {}, func(h *policy.Host) { h.Modes = []protocol.Mode{protocol.ModeSend} }, true},
		{"another mode", func(*client) {}, func(h *policy.Host) { h.Modes = []protocol.Mode{protocol.ModeImm} }, false},
		{"a queue", func(c *client) { c.port.queues = 2 }, func(h *policy.Host) { h.MaxQueues = 1 },
			true},
		{"a queue that it does not have", func(*client) {}, func(h *policy.Host) { h.MaxQueues = 1 }, false},
		{"memory", func(*client) {}, func(h *policy.Host) { h.MaxMemory = 32 << 20 }, true},
		{"the bound on its memory", func(*client) {}, func(h *policy.Host) { h.MaxMemory = 0 }, false},
		{"its rates", func(*client) {}, func(h *policy.Host) { h.MaxTxRate, h.MaxRxRate = 1e6, 1e6 }, false},
		{"promiscuous mode", func(c *client) { c.filter(protocol.ReceiveFilter{Promisc: true}, protocol.CfgOK) },
			func(h *policy.Host) { h.Promiscuous = false }, true},
		{"promiscuous mode on a port of a bridge", func(c *client) {
			c.port.floods = true
			c.filter(protocol.ReceiveFilter{Promisc: true}, protocol.CfgOK)
		}, func(h *policy.Host) { h.Promiscuous = false }, false},
		{"promiscuous mode that it is not in", func(*client) {}, func(h *policy.Host) { h.Promiscuous = false }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newClient(t, base(nothing))
			tt.before(c)
			before := c.s.policy
			err := c.s.govern(base(tt.change), protocol.ModeImm)
			if errors.Is(err, errPolicy) != tt.ends || (err != nil) != tt.ends {
				t.Errorf("%v", err)
			}
			if err != nil && c.s.policy != before {
				t.Error("a session that ends has got another policy")
			}
		})
	}
	c := newClient(t, hostWith("all"))
	if err := c.s.govern(base(nothing), protocol.ModeImm); !errors.Is(err, errPolicy) {
		t.Errorf("a bound on memory where there was none: %v", err)
	}
}

// TestSetPolicy changes the policy while there are sessions of all kinds.
func TestSetPolicy(t *testing.T) {
	c := newClient(t, hostWith("all"))
	u := c.unit
	start := time.Now()
	reasons := make(map[string]error)
	add := func(key, owner, name string, n int) *attachment {
		a := &attachment{
			host: host{
				key: key, owner: owner, peer: named(name), hello: session.Hello{Name: key}, log: u.cfg.Log,
				since: start.Add(time.Duration(n) * time.Second), cancel: func(err error) { reasons[key] = err },
			},
			gone: make(chan struct{}),
		}
		if err := u.enter(t.Context(), a, time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		return a
	}
	u.hosts["a"].cancel = func(err error) { reasons["a"] = err }
	u.hosts["a"].begin(c.s, protocol.ModeImm)
	delete(u.hosts, "b")
	add("opening", "k1", "gamma", 1)
	add("unchanged", "k2", "delta", 2)
	for i := range 3 {
		add(fmt.Sprint("many", i), "k3", "delta", 9-i) // the last one is the oldest
	}
	if n := u.SetPolicy(parsed(t, "hosts:\n  alpha: {vlans: 7}\n  gamma: {vlans: none}\n  delta: {}\n")); n != 1 {
		t.Errorf("%d sessions end", n)
	}
	if !errors.Is(reasons["opening"], errPolicy) || len(reasons) != 1 {
		t.Errorf("%v", reasons)
	}
	if now, _ := c.s.current(); now.vlans.String() != "7" {
		t.Errorf("the established session has VLANs %v", now.vlans)
	}
	clear(reasons)
	u.hosts["a"].policy = u.hosts["a"].by(u.policy.Load())
	u.leave(u.hosts["opening"])
	u.hosts["a"].owner = "k4"
	if n := u.SetPolicy(parsed(t, "default: {max-sessions: 2}\nhosts:\n  alpha: {modes: send}\n")); n != 5 {
		t.Errorf("%d sessions end", n)
	}
	ended := slices.Sorted(maps.Keys(reasons))
	// Sessions that are being opened end at any change of their policy.
	if !slices.Equal(ended, []string{"a", "many0", "many1", "many2", "unchanged"}) {
		t.Errorf("%q end: %v", ended, reasons)
	}
}

// TestSetPolicySessions lowers the number of sessions of a key. The oldest sessions must stay.
func TestSetPolicySessions(t *testing.T) {
	var reasons []int
	u := newUnit(t, Config{})
	start := time.Now()
	var first *client
	for i := range 3 {
		c := newClient(t, hostWith("all"))
		if first == nil {
			first = c
		}
		h := *policy.Default().For("", "")
		c.s.policy = &h
		a := c.unit.hosts["a"]
		a.key, a.owner, a.since = fmt.Sprint(i), "key", start.Add(-time.Duration(i)*time.Second)
		a.cancel = func(error) { reasons = append(reasons, i) }
		a.begin(c.s, protocol.ModeImm)
		u.hosts[a.key] = a
	}
	if n := u.SetPolicy(parsed(t, "default: {max-sessions: 1}")); n != 2 || !slices.Equal(reasons, []int{1, 0}) {
		t.Errorf("%d end: %v", n, reasons)
	}
}
