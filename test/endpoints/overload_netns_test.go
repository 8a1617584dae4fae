package endpoints

import (
	"testing"

	"github.com/splitnic/splitnic/internal/testenv"
)

// TestNetnsOverload sends far more long datagrams than the card can carry, in both directions. The
// excess datagrams have to be dropped before the fabric, and as a whole.
func TestNetnsOverload(t *testing.T) {
	for _, kind := range []string{"macvtap", "tap"} {
		t.Run(kind, func(t *testing.T) {
			s := newTestbed(t, kind, 1500)
			testenv.Overload(t, s.hostNS, s.lanNS, lanAddr, 3000)
			testenv.Overload(t, s.lanNS, s.hostNS, "10.78.0.2", 3000)
		})
	}
}
