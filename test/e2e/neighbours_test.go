package e2e

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/splitnic/splitnic/internal/testenv"
)

// TestRDMANeighbours kills an endpoint. It starts the endpoint again when the host's network stack
// has dropped its neighbour entries and its solicitations are lost. The neighbours have to be
// reachable again, although the network stack itself would not solicit again for an hour.
func TestRDMANeighbours(t *testing.T) {
	r := newFixture(t, "macvtap")
	h := r.host(t, "--persist")
	testenv.AskOnce(t, h.ns, "sn0")
	mac, err := net.ParseMAC(h.mac())
	if err != nil {
		t.Fatal(err)
	}
	type talk struct {
		to netip.Addr
		c  *net.UDPConn
	}
	var talks []talk
	for near, far := range map[string]string{h.addr(): addr(0), h.addr6(): addr6(0)} {
		// The LAN gets a static entry: a solicitation by the LAN would resolve the host's entry too.
		testenv.Neighbour(t, r.lan, "lan0", netip.MustParseAddr(near), mac)
		server, c := udpPair(t, r.lan, far, h.ns)
		go func() {
			b := make([]byte, 64)
			for {
				n, from, err := server.ReadFromUDPAddrPort(b)
				if err != nil {
					return // the test has ended
				}
				_, _ = server.WriteToUDPAddrPort(b[:n], from)
			}
		}()
		talks = append(talks, talk{netip.MustParseAddr(far), c})
	}
	say := func(what byte) {
		t.Helper()
		for _, k := range talks {
			if _, err := k.c.Write([]byte{what}); err != nil {
				t.Fatal(err)
			}
		}
	}
	// talking sends the byte until all neighbours have answered with it.
	talking := func(what byte) {
		t.Helper()
		for _, k := range talks {
			eventually(t, func() bool {
				say(what)
				got := [1]byte{what + 1}
				for err := error(nil); err == nil && got[0] != what; {
					err = k.c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
					if err == nil {
						_, err = k.c.Read(got[:])
					}
				}
				return got[0] == what
			}, "an answer from %v", k.to)
		}
	}
	for i, endpoint := range []struct{ kill, start func() }{
		{func() { r.unit.kill() }, r.startUnit},
		{func() { h.kill() }, h.start},
	} {
		round := byte(2 * i)
		talking(round)
		endpoint.kill()
		eventually(t, func() bool { return !testenv.Running(t, h.ns, "sn0") },
			"the stack noticing that sn0 has lost its carrier")
		say(round + 1)
		for _, k := range talks {
			eventually(t, func() bool {
				return testenv.NeighbourState(t, h.ns, "sn0", k.to) == netlink.NUD_INCOMPLETE
			}, "asking for %v", k.to)
		}
		endpoint.start()
		talking(round + 1)
	}
}
