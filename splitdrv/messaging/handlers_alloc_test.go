//go:build !race

// The race detector makes allocations of its own.

package messaging_test

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/cpus"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/messaging/cq"
)

// TestHandlersDoNotAllocate is TestFramesDoNotAllocate with workers that are bound to a
// processor, poll before they sleep, and exhaust their budget with each frame.
func TestHandlersDoNotAllocate(t *testing.T) {
	cpu := cpus.Allowed()[:1]
	cfg := patient(messaging.Config{KeepAlive: 50 * time.Second, Handlers: []cq.Handler{
		{Number: 0, CPUs: cpu, Budget: 1}, {Number: 1, CPUs: cpu, Priority: 1, Budget: 1, Spin: time.Microsecond},
	}})
	_, a, b := startedPair(t, cfg, newRawPort)
	f := frame(1, 1500, 1500)
	buf := make([]byte, 1<<16)
	got := testing.AllocsPerRun(500, func() {
		if _, err := unix.Write(a, f); err != nil {
			t.Fatal(err)
		}
		if m, err := unix.Read(b, buf); err != nil || m != len(f) {
			t.Fatal(m, err)
		}
	})
	if got != 0 {
		t.Errorf("%v allocations per frame", got)
	}
}
