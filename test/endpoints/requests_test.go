package endpoints

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/test/attacks"
)

// TestRequestsTooOften lets a host change its address, and go up and down, as fast as the requests
// are answered, in two sessions. The netdevices of the I/O unit may be changed only at the rate
// that applies to the host's key. Another host must not be affected. A host with the same key has
// to wait, and to get its changes.
func TestRequestsTooOften(t *testing.T) {
	const burst, rate = 64, 20
	w := newWorld(t)
	u, _ := w.unit(ruled(t, "default: {macs: any}"))
	d, h, _ := w.host("alpha")
	d.up(t)
	to := w.attacker()
	changes := func() int {
		w.card.mu.Lock()
		defer w.card.mu.Unlock()
		return w.card.changes
	}
	begun := time.Now()
	for _, name := range []string{"address", "up-down"} {
		class, _ := attacks.ClassOf(name)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var done atomic.Uint64
		result := make(chan error, 1)
		go func() { result <- class.Run(ctx, to, &done) }()
		held := func() bool {
			for _, s := range u.Status().Hosts {
				if s.Name == "flood" && s.Traffic.RequestsThrottled >= 3 {
					return true
				}
			}
			return false
		}
		testenv.Eventually(t, func() bool { return held() || len(result) > 0 }, "requests that are held back")
		w.both(d)
		if name == "up-down" {
			_ = d.set(func() { d.want.Up = false })
			testenv.Eventually(t, func() bool { return !w.card.isUp(d.mac) }, "the port of the host beside set down")
			_ = d.set(func() { d.want.Up = true; d.mac = "06:00:00:00:00:77" })
			testenv.Eventually(t, func() bool { return w.card.isUp("06:00:00:00:00:77") },
				"its port set up, with another address")
			w.both(d)
		}
		cancel()
		if err := <-result; err != nil {
			t.Error(err)
		}
	}
	if n, most := changes(), burst+rate*time.Since(begun).Seconds(); float64(n) > most {
		t.Errorf("netdevices were changed %d times, at most %.0f", n, most)
	}
	if n := h.Status().Sessions; n != 1 {
		t.Errorf("the host beside had to connect again: %d sessions", n)
	}
}

// TestUnitAsksTooOften lets an I/O unit change a host's address, MTU and carrier as fast as the
// requests are answered, in two sessions. The netdevice may be changed only at a limited rate, and
// has to get the I/O unit's last values.
func TestUnitAsksTooOften(t *testing.T) {
	const burst, rate = 32, 10
	s := newScript(t)
	d, h := s.followed(func(c *host.Config) { c.MaxMTU = 9000 })
	changes := 0
	_ = d.set(func() { d.onChange = func() { changes++ } })
	begun := time.Now()
	for session := range 2 {
		var last protocol.MAC
		for n := 0; h.Status().Traffic == nil || h.Status().Traffic.RequestsThrottled < 3; n++ {
			if n == 1000 {
				t.Fatalf("%d changes, and none of them is held back", 3*n)
			}
			last = protocol.MAC{2, 0, 0, byte(session), byte(n >> 8), byte(n)}
			s.push(protocol.CfgMAC, protocol.AppendMAC(nil, last))
			s.push(protocol.CfgMTU, protocol.AppendMTU(nil, 1000+n%1000))
			s.push(protocol.CfgLinkState, protocol.AppendLinkState(nil, protocol.LinkState{Up: n%2 == 0}))
		}
		d.await(t, "the address that was said last", func() bool { return d.mac == net.HardwareAddr(last[:]).String() })
		if session == 0 {
			s.end()
			testenv.Eventually(t, func() bool { return h.Status().Sessions == 2 }, "another session")
		}
	}
	// The first settings of each session are changes as well.
	const sessions, first = 2, 6
	d.mu.Lock()
	defer d.mu.Unlock()
	if most := burst + sessions*first + rate*time.Since(begun).Seconds(); float64(changes) > most {
		t.Errorf("the netdevice was changed %d times, at most %.0f", changes, most)
	}
}
