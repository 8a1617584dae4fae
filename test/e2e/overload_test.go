package e2e

import (
	"testing"

	"github.com/splitnic/splitnic/internal/testenv"
)

// TestRDMAOverload sends more long datagrams than the card carries. What it has
// no room for is dropped whole.
func TestRDMAOverload(t *testing.T) {
	r := newRig(t, "macvtap")
	testenv.Overload(t, r.host(t).ns, r.lan, addr(0), 500)
}
