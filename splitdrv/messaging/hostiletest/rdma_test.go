//go:build cgo

package hostiletest

import (
	"testing"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/conform"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/verbs"
)

// onDevices returns a fabric of two real devices, one for the session and one for the attacker.
func onDevices(t *testing.T) twoDevices {
	names := testenv.NeedRDMA(t, 2)
	open := func(name string) *verbs.Context {
		c, err := verbs.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
		return c
	}
	attacker := open(names[1])
	traits, err := conform.TraitsOf(attacker.Driver(), testenv.KernelRelease(t), attacker.Limits())
	if err != nil {
		t.Fatal(err)
	}
	return twoDevices{
		Victim: open(names[0]), Attacker: attacker, Traits: traits,
		// With the default, Soft-RoCE retransmits too early: under emulation the peer does not
		// answer so quickly.
		Timing: fabric.Timing{Timeout: 18},
		// A device counts received messages for which no receive was posted.
		RNR: func() uint64 { return testenv.RDMACounter(t, names[0], "send_rnr_err") },
	}
}

// TestRDMAHostile makes those attacks of TestHostile that the real devices have to refuse, or that
// have to do no harm.
func TestRDMAHostile(t *testing.T) {
	testenv.NeedRDMA(t, 2)
	attackAll(t, onDevices, func(a Attack) bool { return a.Code == "" })
}

// TestRDMAHostileRules makes those attacks of TestHostile that break a rule, on real devices.
func TestRDMAHostileRules(t *testing.T) {
	testenv.NeedRDMA(t, 2)
	attackAll(t, onDevices, func(a Attack) bool { return a.Code != "" })
}

// TestRDMADrain is TestDrain on real devices.
func TestRDMADrain(t *testing.T) {
	testenv.NeedRDMA(t, 2)
	drain(t, onDevices)
}
