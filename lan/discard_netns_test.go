package lan_test

import (
	"fmt"
	"testing"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/tap/discard"
	"github.com/splitnic/splitnic/vnet"
)

// TestNetnsWholeDatagrams offers a port many times what is read from it. It
// takes whole datagrams, and drops whole ones.
func TestNetnsWholeDatagrams(t *testing.T) {
	testenv.NeedTUN(t)
	for _, kind := range []string{"macvtap", "tap"} {
		for _, early := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, early %t", kind, early), func(t *testing.T) {
				testenv.NoLeaks(t)
				s := newSite(t)
				testenv.DisableIPv6(t, s.station)
				p := s.open(t, s.spec(t, kind), lan.Config{MAC: macA, Offloads: vnet.AllOffloads, NoDiscard: !early})
				testenv.Address(t, s.station, "eth0", "10.0.0.1/24")
				testenv.Run(t, s.station, "ip", "neigh", "replace", "10.0.0.2", "lladdr", macA.String(), "dev", "eth0",
					"nud", "permanent")
				send := testenv.LongDatagrams(t, s.station, "10.0.0.2", 60000)
				for range 100 {
					pieces, longest := testenv.Flood(t, p.Queues()[0], send)
					if longest >= discard.Patience { // everything had to pass
						continue
					}
					// 1400 frames were read meanwhile, 384 at the end.
					if early && (pieces.Broken > 0 || pieces.Whole < 35) || !early && pieces.Broken < 2*pieces.Whole {
						t.Errorf("%d whole datagrams were read, and parts of %d", pieces.Whole, pieces.Broken)
					}
					return
				}
				t.Fatal("the reader is kept from reading again and again")
			})
		}
	}
}
