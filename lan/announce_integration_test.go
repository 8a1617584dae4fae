package lan_test

import (
	"net"
	"strings"
	"testing"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/vnet"
)

// TestNetnsAnnounce announces a host on its port. It expects the bridge behind the card to learn
// the place of the host. If the port is in a bridge of the I/O unit, this bridge has to learn the
// place too. A port that is down or closed must announce nothing.
func TestNetnsAnnounce(t *testing.T) {
	testenv.NeedTUN(t)
	for _, kind := range strings.Fields(kinds) {
		t.Run(kind, func(t *testing.T) {
			testenv.NoLeaks(t)
			s := newTestbed(t)
			testenv.Bridge(t, s.station, "br9", "eth0")
			mac := net.HardwareAddr{2, 0, 0, 0, 9, 1}
			p := s.open(t, s.spec(t, kind), lan.Config{MAC: mac, Offloads: vnet.AllOffloads})
			frame := make([]byte, vnet.HdrLen+60)
			copy(frame[vnet.HdrLen:], []byte{255, 255, 255, 255, 255, 255})
			copy(frame[vnet.HdrLen+6:], mac)
			frame[vnet.HdrLen+12], frame[vnet.HdrLen+13] = 0x80, 0x35
			if err := p.SetUp(false); err != nil {
				t.Fatal(err)
			}
			_ = p.Announce(frame) // some kinds of port return an error
			if testenv.Learned(t, s.station, "eth0", mac) {
				t.Error("a port that is down has announced its host")
			}
			if err := p.SetUp(true); err != nil {
				t.Fatal(err)
			}
			testenv.Eventually(t, func() bool {
				// A bridge does not forward frames at once.
				return p.Announce(frame) == nil && testenv.Learned(t, s.station, "eth0", mac)
			}, "the bridge does not learn where the host is")
			if kind == "tap" && !testenv.Learned(t, s.unit, p.Name(), mac) {
				t.Error("the I/O unit's own bridge does not know the host")
			}
			if err := p.Close(); err != nil {
				t.Fatal(err)
			}
			if err := p.Announce(frame); err == nil {
				t.Error("a closed port has announced its host")
			}
		})
	}
}
