package messaging_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/messaging/cq"
)

// TestNUMANode expects that the memory of a session comes from the device's NUMA node.
func TestNUMANode(t *testing.T) {
	limits := fabrictest.DefaultLimits()
	limits.NUMANode = testenv.LastNode(t)
	n := fabrictest.New(fabrictest.WithLimits(limits))
	fabrictest.NoLeaks(t, n)
	dev := n.Device("a")
	t.Cleanup(func() { dev.Close() })
	preferred := func() int {
		b, err := os.ReadFile("/proc/self/numa_maps")
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, f := range strings.Fields(string(b)) {
			if f == fmt.Sprintf("prefer:%d", limits.NUMANode) {
				n++
			}
		}
		return n
	}
	conn, err := messaging.New(messaging.Config{Device: dev})
	if err != nil {
		t.Fatal(err)
	}
	if preferred() == 0 {
		t.Error("no memory comes from the device's node")
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	if n := preferred(); n > 0 {
		t.Errorf("%d mappings are left", n)
	}
}

// TestFootprint checks that a session's registered memory grows by the same amount for each
// data channel: that of its pools and send slots, and nothing else. LeastMemory must return
// the same, except for rounding up to huge pages.
func TestFootprint(t *testing.T) {
	n := fabrictest.New()
	fabrictest.NoLeaks(t, n)
	dev := n.Device("a")
	t.Cleanup(func() { dev.Close() })
	pinned := func(c messaging.Config) int {
		t.Helper()
		c.Device = dev
		conn, err := messaging.New(c)
		if err != nil {
			t.Fatal(err)
		}
		bytes := conn.Stats().MemoryPinned
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		const hugePage, arenas = 2 << 20, 1 + 3*cq.MaxQueues
		if least := int(c.LeastMemory()); bytes < least || bytes >= least+arenas*hugePage || (bytes-least)%4096 != 0 {
			t.Errorf("%d queues take %d bytes, LeastMemory is %d", c.Queues, bytes, least)
		}
		return bytes
	}
	pools := []messaging.PoolConfig{{ElementSize: 2048, Elements: 256}, {ElementSize: 65536, Elements: 32}}
	size := func(queues int) int { return pinned(messaging.Config{Queues: queues, Pools: pools}) }
	each := size(2) - size(1)
	for queues := 3; queues <= cq.MaxQueues; queues++ {
		if got := size(queues) - size(queues-1); got != each {
			t.Errorf("data channel %d takes %d bytes, channel 2 took %d", queues, got, each)
		}
	}
	larger := []messaging.PoolConfig{pools[0], {ElementSize: 65536, Elements: 64}}
	if got := pinned(messaging.Config{Queues: 3, Pools: larger}) - size(3); got != 3*32*65536 {
		t.Errorf("32 elements of 64 KiB more on 3 channels take %d bytes", got)
	}
	t.Logf("%d bytes for a session of one data channel, %d for each further one", size(1), each)
}
