package e2e

import (
	"testing"

	"github.com/splitnic/splitnic/internal/testenv"
)

// TestRDMAOddFrames sends odd frames over Soft-RoCE, from packet sockets on the host's netdevice and
// on the LAN. The session has to survive and valid frames have to pass.
func TestRDMAOddFrames(t *testing.T) {
	for _, kind := range []string{"macvtap", "packet"} {
		t.Run(kind, func(t *testing.T) {
			r := newFixture(t, kind)
			h := r.host(t)
			for _, w := range testenv.OddWays(t, [2]string{h.ns, "sn0"}, [2]string{r.lan, "lan0"}) {
				w.Corpus(t, 5)
				w.Random(t, 2000, 1)
			}
			host, unit := h.hostStatus(), r.unit.unitStatus()
			if host.Sessions != 1 || unit.Sessions != 1 || len(unit.Hosts) != 1 {
				t.Fatalf("%d and %d sessions, the last error %q", host.Sessions, unit.Sessions, host.LastError)
			}
			a, b := host.Traffic.Channels[0], unit.Hosts[0].Traffic.Channels[0]
			t.Logf("at the host %d malformed, %d padded; at the I/O unit %d and %d", a.TxMalformed, a.TxPadded, b.TxMalformed,
				b.TxPadded)
			if a.TxMalformed == 0 || a.TxPadded == 0 {
				t.Error("the host had nothing to find")
			}
			if a.RxMalformed+b.RxMalformed != 0 {
				t.Errorf("%d and %d malformed frames have crossed", a.RxMalformed, b.RxMalformed)
			}
		})
	}
}
