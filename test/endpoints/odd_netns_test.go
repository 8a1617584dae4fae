package endpoints

import (
	"math/rand/v2"
	"testing"

	"github.com/splitnic/splitnic/internal/testenv"
)

// TestNetnsOddFrames sends the whole corpus of odd frames, and random frames, through packet
// sockets on the host's netdevice and on the LAN, with each kind of LAN interface. The session has
// to stay, valid frames among them have to pass, and ordinary frames unchanged.
func TestNetnsOddFrames(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			s := newTestbed(t, kind, 1500)
			// Promiscuous mode lets frames of all VLANs pass; the policy permits all of them.
			s.unit.SetPolicy(rules(t, "default: {promiscuous: yes, macs: any, link-control: yes}"))
			ways := testenv.OddWays(t, [2]string{s.hostNS, "sn0"}, [2]string{s.lanNS, "lan0"})
			testenv.Eventually(t, func() bool { return s.unit.Status().Hosts[0].Filter.Promisc }, "sn0 is promiscuous")
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			for _, w := range ways {
				w.Random(t, 10_000, seed)
				w.Corpus(t, 1)
			}
			h, u := s.host.Status(), s.unit.Status()
			if h.Sessions != 1 || u.Sessions != 1 || len(u.Hosts) != 1 || len(u.Violations) != 0 {
				t.Fatalf("%d and %d sessions, the last error %q, violations %v", h.Sessions, u.Sessions, h.LastError, u.Violations)
			}
			host, unit := h.Traffic.Channels[0], u.Hosts[0].Traffic.Channels[0]
			t.Logf("at the host %d malformed, %d padded; at the I/O unit %d and %d", host.TxMalformed, host.TxPadded,
				unit.TxMalformed, unit.TxPadded)
			if host.TxMalformed == 0 || host.TxPadded == 0 || unit.TxMalformed == 0 || unit.TxPadded == 0 {
				t.Error("not all of them had anything to find")
			}
			if host.RxMalformed+unit.RxMalformed != 0 {
				t.Errorf("%d and %d malformed frames have crossed", host.RxMalformed, unit.RxMalformed)
			}
		})
	}
}
