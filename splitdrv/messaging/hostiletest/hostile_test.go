package hostiletest_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/splitdrv/messaging/hostiletest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func inMemory(t *testing.T) hostiletest.Fabric {
	n := fabrictest.New()
	fabrictest.NoLeaks(t, n)
	f := hostiletest.Fabric{
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

func TestHostile(t *testing.T) { hostiletest.Run(t, inMemory) }

func TestDrain(t *testing.T) { hostiletest.Drain(t, inMemory) }

func TestHostileCoversEveryRule(t *testing.T) { hostiletest.Covered(t) }
