package bench

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

func TestRun(t *testing.T) {
	defer goleak.VerifyNone(t)
	n := fabrictest.New()
	a, b := n.Device("a"), n.Device("b")
	defer a.Close()
	defer b.Close()
	for _, queues := range []int{1, 2} {
		r, err := Run(t.Context(), Config{
			From: a, To: b, Size: 1500, Queues: queues, Messages: 1000, WarmUp: 100,
			Messaging: messaging.Config{PeerTimeout: time.Minute},
		})
		if err != nil {
			t.Fatal(err)
		}
		if r.Messages != 1000 || r.MessageRate <= 0 || r.MiBPerSecond <= 0 {
			t.Errorf("%+v", r)
		}
		if c := n.Counters("a"); c.WriteImms < 1100 {
			t.Errorf("only %d writes", c.WriteImms)
		}
	}
	if _, err := Run(t.Context(), Config{From: a, To: b, Size: 10}); err == nil {
		t.Error("a message shorter than its headers was accepted")
	}
}
