package hostiletest

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/fabrictest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func inMemory(t *testing.T) twoDevices {
	n := fabrictest.New()
	fabrictest.NoLeaks(t, n)
	f := twoDevices{
		Victim: n.Device("victim"), Attacker: n.Device("attacker"),
		RNR: func() uint64 { return n.Counters("attacker").RNR },
	}
	for _, d := range []fabric.Device{f.Victim, f.Attacker} {
		t.Cleanup(func() {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	return f
}

func TestHostile(t *testing.T) { attackAll(t, inMemory, func(Attack) bool { return true }) }

func TestDrain(t *testing.T) { drain(t, inMemory) }

func TestHostileCoversEveryRule(t *testing.T) { covered(t) }
