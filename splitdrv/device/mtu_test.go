package device_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/splitnic/splitnic/fabric"
)

// TestPortMTU has many sessions ask for the MTU of the port. The device is asked once in a second,
// and again after an event of a port.
func TestPortMTU(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t)
		want := uint64(0)
		ask := func(times int) {
			t.Helper()
			for range times {
				if mtu, err := w.PortMTU(); err != nil || mtu != 4096 {
					t.Fatalf("%d bytes, %v", mtu, err)
				}
			}
			want++
			if n := w.net.Commands("a").QueryPort; n != want {
				t.Errorf("asked %d times, want %d", n, want)
			}
		}
		for range 3 {
			ask(100)
			time.Sleep(time.Second)
		}
		ask(1)
		w.net.Raise("a", fabric.Event{Type: fabric.EventPortErr, Port: 1})
		synctest.Wait()
		ask(100)
		w.net.Raise("a", fabric.Event{Type: fabric.EventSQDrained})
		synctest.Wait()
		want--
		ask(100)
	})
}
