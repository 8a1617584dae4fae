//go:build cgo

package hostiletest

import (
	"testing"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/conform"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/verbs"
)

// onDevices has the attacker's queue pairs on another device than the session's.
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
		// Soft-RoCE resends too soon with the default, and under emulation
		// nobody answers so quickly.
		Timing: fabric.Timing{Timeout: 18},
		// A device counts the messages to it that it was not ready for.
		RNR: func() uint64 {
			c, err := verbs.Counters(names[0], 1)
			if err != nil {
				t.Fatal(err)
			}
			return c["send_rnr_err"]
		},
	}
}

// TestRDMAHostile is TestHostile on real devices.
func TestRDMAHostile(t *testing.T) {
	testenv.NeedRDMA(t, 2)
	attackAll(t, onDevices)
}

// TestRDMADrain is TestDrain on real devices.
func TestRDMADrain(t *testing.T) {
	testenv.NeedRDMA(t, 2)
	drain(t, onDevices)
}
