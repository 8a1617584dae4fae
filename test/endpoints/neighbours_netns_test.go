package endpoints

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/splitdrv/host"
)

// TestNetnsNeighbours interrupts the session until the host's network stack has forgotten its
// neighbours and has solicited them without the LAN receiving this. When the carrier is back, the
// neighbours have to be solicited again, although the stack itself would not do so for an hour, and
// the waiting datagrams have to arrive.
func TestNetnsNeighbours(t *testing.T) {
	s := newTestbed(t, "macvtap", 1500)
	testenv.AskOnce(t, s.hostNS, "sn0")
	mac, err := s.netdev.MAC()
	if err != nil {
		t.Fatal(err)
	}
	far := []netip.Addr{netip.MustParseAddr(lanAddr), netip.MustParseAddr(lanAddr6)}
	var clients []*net.UDPConn
	for i, near := range []netip.Addr{netip.MustParseAddr("10.78.0.2"), netip.MustParseAddr("fd78::2")} {
		// Otherwise a solicitation from the LAN would also tell the host its neighbour's address.
		testenv.Neighbour(t, s.lanNS, "lan0", near, mac)
		clients = append(clients, echoed(t, s.lanNS, far[i], s.hostNS))
	}
	say := func(what byte) {
		for _, c := range clients {
			if _, err := c.Write([]byte{what}); err != nil {
				t.Fatal(err)
			}
		}
	}
	heard := func(what byte) {
		t.Helper()
		for i, c := range clients {
			for got := ([1]byte{what + 1}); got[0] != what; {
				if _, err := c.Read(got[:]); err != nil {
					t.Fatalf("no answer from %v: %v", far[i], err)
				}
			}
		}
	}
	for round := byte(1); round < 20; round += 4 {
		say(round)
		heard(round)
		s.world.fabric.Cut("alpha")
		say(round + 1) // makes the queue pair fail
		testenv.Eventually(t, func() bool { return !testenv.Running(t, s.hostNS, "sn0") }, "sn0 keeps its carrier")
		say(round + 2)
		for _, to := range far {
			testenv.Eventually(t, func() bool {
				return testenv.NeighbourState(t, s.hostNS, "sn0", to) == netlink.NUD_INCOMPLETE
			}, "%v is not asked for", to)
		}
		s.world.fabric.Heal("alpha")
		heard(round + 2)
		testenv.Eventually(t, func() bool { return s.host.Status().State == host.Connected }, "no session")
	}
}

// echoed returns a socket in namespace client, connected to a socket at addr in namespace ns that
// sends datagrams back.
func echoed(t *testing.T, ns string, addr netip.Addr, client string) *net.UDPConn {
	t.Helper()
	var server, c *net.UDPConn
	err := netns.Do(ns, func() (err error) {
		server, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, 0)))
		return err
	})
	if err == nil {
		err = netns.Do(client, func() (err error) {
			c, err = net.DialUDP("udp", nil, server.LocalAddr().(*net.UDPAddr))
			return err
		})
	}
	if err == nil {
		err = c.SetDeadline(time.Now().Add(testenv.Patience))
	}
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b := make([]byte, 64)
		for {
			n, from, err := server.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			_, _ = server.WriteToUDPAddrPort(b[:n], from)
		}
	}()
	t.Cleanup(func() {
		server.Close()
		c.Close()
		<-ended
	})
	return c
}
