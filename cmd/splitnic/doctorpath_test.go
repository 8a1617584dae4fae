package main

import (
	"net/netip"
	"testing"

	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/verbs"
)

// TestNetnsDoctorPath examines paths through a bridge that is an honest one, then one that drops
// large packets, and then to a peer that does not answer.
func TestNetnsDoctorPath(t *testing.T) {
	here, between, there := testenv.NetNS(t), testenv.NetNS(t), testenv.NetNS(t)
	testenv.Veth(t, here, "eth0", between, "port0")
	testenv.Veth(t, there, "eth0", between, "port1")
	testenv.Bridge(t, between, "br0", "port0", "port1")
	testenv.Address(t, here, "eth0", "10.9.0.1/24")
	testenv.Address(t, there, "eth0", "10.9.0.2/24")
	testenv.Address(t, here, "eth0", "fd00::1/64")
	testenv.Address(t, there, "eth0", "fd00::2/64")
	mtu := func(ns, dev, bytes string) { testenv.Run(t, ns, "ip", "link", "set", dev, "mtu", bytes) }
	mtu(here, "eth0", "9000")
	mtu(there, "eth0", "9000")
	for _, dev := range []string{"port0", "port1", "br0"} {
		mtu(between, dev, "9000")
	}
	port := verbs.PortAttr{LinkLayer: verbs.LinkEthernet, ActiveMTU: 4096}
	expect := func(what, peer, status string) {
		t.Helper()
		var r report
		err := netns.Do(here, func() error {
			checkPath(t.Context(), &r, "rxe0", verbs.GIDEntry{Netdev: "eth0"}, port, netip.MustParseAddr(peer))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(r) != 1 || r[0].Status != status {
			t.Errorf("%s: %+v, want status %s", what, r, status)
		}
	}
	expect("an honest path", "10.9.0.2", "ok")
	expect("an honest path", "fd00::2", "ok")
	mtu(between, "port1", "1514")
	expect("a path that drops large packets", "10.9.0.2", "error")
	mtu(here, "eth0", "1500")
	expect("a netdevice whose MTU is too small", "10.9.0.2", "error")
	expect("a peer that is not there", "10.9.0.77", "warning")
}
