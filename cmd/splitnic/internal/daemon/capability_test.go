package daemon

import (
	"strings"
	"testing"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/lan"
)

// TestNetnsKindNeeds starts an I/O unit with CAP_NET_ADMIN and without CAP_NET_RAW. It expects a
// refusal, with a documented error, for the kind of LAN interface that needs the latter.
func TestNetnsKindNeeds(t *testing.T) {
	testenv.NeedRoot(t)
	for kind, missing := range map[lan.Kind]string{
		lan.Macvtap: "", lan.Packet: "CAP_NET_RAW", lan.TAP: "", lan.VhostUser: "",
	} {
		c := IOUnit{LAN: string(kind) + ":eth1", Kind: kind}
		if err := c.checkCapability(); err != nil {
			t.Errorf("%s, of root: %v", kind, err)
		}
		err := AsEndpoint(c.checkCapability)
		if missing == "" {
			if err != nil {
				t.Errorf("%s: %v", kind, err)
			}
			continue
		}
		if exit.Status(err) != exit.Permission || !strings.Contains(err.Error(), missing+" is missing") {
			t.Errorf("%s: %v, and %s is missing", kind, err, missing)
			continue
		}
		testenv.Ended(t, exit.Permission, err.Error())
	}
}
