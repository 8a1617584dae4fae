package iounit

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/iounit/guard"
	"github.com/splitnic/splitnic/splitdrv/iounit/policy"
	"github.com/splitnic/splitnic/tap/steer"
)

// TestGroupRateComingAgain has a host open one session after the other for the burst that each
// begins with. No more frames may pass than in one session.
func TestGroupRateComingAgain(t *testing.T) {
	may := hostWith("all")
	may.MaxTxGroupPPS = policy.MinPPS
	begun := time.Now()
	c := newClient(t, may)
	c.s.leave()
	passed := 0
	const sessions = 100
	for range sessions {
		c.s = newServices(c.s.host, &c.unit.common, c.port, own, 1500, 1500)
		c.port.queue.Out = nil
		for range 2 * guard.BurstPackets {
			if err := write(c.s.guard.Ports()[0], frame(broadcast, own, 60)); err != nil {
				t.Fatal(err)
			}
		}
		passed += len(c.port.queue.Out)
		c.s.leave()
	}
	if most := guard.BurstPackets + 1 + policy.MinPPS*time.Since(begun).Seconds(); float64(passed) > most {
		t.Errorf("%d broadcasts in %d sessions, at most %.0f", passed, sessions, most)
	}
	if passed < guard.BurstPackets {
		t.Errorf("%d broadcasts, a session may begin with %d", passed, guard.BurstPackets)
	}
}

// TestGovernGroupRate limits the packets to groups during a session, and removes the limit.
func TestGovernGroupRate(t *testing.T) {
	const frames = 1000
	c := newClient(t, policy.Default().For("", ""))
	p := c.s.guard.Ports()[0]
	send := func() (passed int) {
		t.Helper()
		c.port.queue.Out = nil
		for range frames {
			if err := write(p, frame(broadcast, own, 60)); err != nil {
				t.Fatal(err)
			}
		}
		return len(c.port.queue.Out)
	}
	bound := func(packets int64) {
		t.Helper()
		h := *policy.Default().For("", "")
		h.MaxTxGroupPPS = packets
		if err := c.s.govern(&h, protocol.ModeImm); err != nil {
			t.Fatal(err)
		}
	}
	if n := send(); n != frames {
		t.Errorf("%d broadcasts passed without a bound", n)
	}
	begun := time.Now()
	bound(policy.MinPPS)
	n := send()
	if most := guard.BurstPackets + 1 + policy.MinPPS*time.Since(begun).Seconds(); n < guard.BurstPackets ||
		float64(n) > most {
		t.Errorf("%d broadcasts passed, at most %.0f", n, most)
	}
	st, d := c.s.statistics()
	if d != (guard.Dropped{GroupRate: uint64(frames - n)}) || c.s.reported().TxDropped != st.TxDropped+d.GroupRate {
		t.Errorf("%+v, %+v; the host is told %+v", st, d, c.s.reported())
	}
	// Nothing else removes or replaces the limit.
	before := c.s.guard.Rules().Account
	c.vlans("5", protocol.CfgOK)
	c.ask("reset", protocol.CfgReset, nil, protocol.CfgOK)
	if c.s.guard.Rules().Account != before {
		t.Error("a reset takes the bound away")
	}
	bound(0)
	if n := send(); n != frames || len(c.s.guard.Refusals.List()) != 0 {
		t.Errorf("%d broadcasts passed when the bound was gone, others were dropped because %q", n, c.s.guard.Refusals.List())
	}
	// A new limit begins with a full burst, so that frames are not dropped at once.
	bound(policy.MinPPS)
	testenv.Eventually(t, func() bool { return send() > 0 }, "broadcasts passing")
}

// TestUnknownRateOfSession expects the limit to be that of the policy, and what another session has
// used of it to be missing in the next one.
func TestUnknownRateOfSession(t *testing.T) {
	may := hostWith("all")
	may.MaxTxGroupPPS = policy.MinPPS
	for _, floods := range []bool{false, true} {
		c := newClient(t, may)
		c.port.floods = floods
		c.s.leave()
		begun, passed := time.Now(), 0
		const sessions, each = 20, 2 * guard.BurstPackets
		for range sessions {
			c.s = newServices(c.s.host, &c.unit.common, c.port, own, 1500, 1500)
			c.port.queue.Out = nil
			for i := range each {
				if err := write(c.s.guard.Ports()[0], frame(further(i), own, 60)); err != nil {
					t.Fatal(err)
				}
			}
			passed += len(c.port.queue.Out)
			c.s.leave()
		}
		most := guard.BurstPackets + 1 + policy.MinPPS*time.Since(begun).Seconds()
		if floods && (passed < guard.BurstPackets || float64(passed) > most) || !floods && passed != sessions*each {
			t.Errorf("floods %t: %d frames to unknown stations passed, at most %.0f", floods, passed, most)
		}
	}
}

// TestComingAgain has a host open one session after the other for the burst that its latency
// channel has at the beginning of each. No more bytes may pass than in one session.
func TestComingAgain(t *testing.T) {
	for _, way := range []string{"tx", "rx"} {
		for _, owner := range []string{"", "sha256:x"} {
			t.Run(fmt.Sprint(way, " ", owner), func(t *testing.T) {
				may := hostWith("all")
				may.MaxTxRate, may.MaxRxRate = policy.MinRate, policy.MinRate
				c := newClient(t, may)
				c.s.host.owner, c.s.host.latency = owner, &steer.Status{On: true}
				c.s.leave()
				begun, bytes, f := time.Now(), 0, frame(other, own, 1000)
				for range leastBurst {
					s := newServices(c.s.host, &c.unit.common, c.port, own, 1500, 1500)
					p := s.guard.Ports()[0]
					move := func() error { return write(p, f) }
					if way == "rx" {
						c.port.queue.In = slices.Repeat([][]byte{f}, 1000)
						move = func() error {
							_, err := read(p)
							return err
						}
					}
					for move() == nil {
						bytes += 1000
					}
					s.leave()
				}
				if most := policy.MinRate*time.Since(begun).Seconds()/8 + guard.BurstBytes + 1000; float64(bytes) > most {
					t.Errorf("%d bytes in %d sessions, at most %.0f", bytes, leastBurst, most)
				}
				if bytes < guard.BurstBytes {
					t.Errorf("%d bytes", bytes)
				}
			})
		}
	}
}
