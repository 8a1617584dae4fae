package e2e

import (
	"testing"
)

// TestRDMAFollow checks that the host's netdevice follows the network card's carrier and MTU, and
// keeps its MAC address when either end is restarted.
func TestRDMAFollow(t *testing.T) {
	r := newFixture(t, "macvtap")
	h := r.host(t)
	mac := h.mac()
	t.Run("carrier", func(t *testing.T) {
		// This is the cable's other end: eth1 stays up and loses carrier.
		run(t, "ip", "-n", r.lan, "link", "set", "lan0", "down")
		h.waitCarrier(false)
		eventually(t, func() bool {
			s, u := h.hostStatus(), r.unit.unitStatus()
			return s.State == "connected" && !s.Netdevice.Carrier && !u.LAN.Up
		}, "a status that shows the loss of the carrier, and that the I/O unit is there")
		run(t, "ip", "-n", r.lan, "link", "set", "lan0", "up")
		h.waitCarrier(true)
		ping(t, h.ns, addr(0), 2, 56)
	})
	t.Run("MTU", func(t *testing.T) {
		for _, mtu := range []int{1400, 9000, 1500} {
			r.setMTU(mtu)
			eventually(t, func() bool { return h.hostStatus().Netdevice.MTU == mtu && r.unit.unitStatus().LAN.MTU == mtu },
				"a status with MTU %d", mtu)
			ping(t, h.ns, addr(0), 2, mtu-28)
		}
	})
	t.Run("max MTU", func(t *testing.T) {
		small := r.host(t, "--max-mtu", "1300")
		if got := small.mtu(); got != 1300 {
			t.Errorf("the host wants an MTU of 1300 at most and has %d", got)
		}
		ping(t, small.ns, addr(0), 2, 1272)
		small.stop()
		r.hosts = r.hosts[:1]
	})
	t.Run("MAC address", func(t *testing.T) {
		h.daemon.stop()
		h.start()
		h.ready()
		if got := h.mac(); got != mac {
			t.Errorf("the MAC address was %s and is %s after a restart of the host", mac, got)
		}
		r.unit.stop()
		h.waitCarrier(false)
		r.startUnit()
		h.waitCarrier(true)
		if got := h.mac(); got != mac {
			t.Errorf("the MAC address was %s and is %s after a restart of the I/O unit", mac, got)
		}
		ping(t, h.ns, addr(0), 2, 56)
	})
}
