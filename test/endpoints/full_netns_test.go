package endpoints

import (
	"net"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/internal/testenv"
)

// throttle limits what a netdevice sends to rate bytes per second. Further frames wait in its
// queue, and are charged to the send buffers of their sockets until they leave.
func throttle(t *testing.T, ns, name string, rate uint64) {
	t.Helper()
	testenv.With(t, ns, func(h *netlink.Handle) error {
		return h.QdiscAdd(&netlink.Tbf{
			QdiscAttrs: netlink.QdiscAttrs{LinkIndex: testenv.Link(t, ns, name).Attrs().Index, Parent: netlink.HANDLE_ROOT,
				Handle: netlink.MakeHandle(1, 0)},
			Rate: rate, Buffer: 256 << 10, Limit: 64 << 20,
		})
	})
}

// TestNetnsFullCard floods a slow card. The I/O unit has to wait each time the card is full and
// there are frames to send, and to go on when the card has room again.
func TestNetnsFullCard(t *testing.T) {
	for _, kind := range []string{"macvtap", "packet"} {
		t.Run(kind, func(t *testing.T) {
			s := newTestbed(t, kind, 9000)
			throttle(t, s.unitNS, "eth1", 16<<20)
			var c net.Conn
			if err := netns.Do(s.hostNS, func() (err error) {
				c, err = net.Dial("udp", net.JoinHostPort(lanAddr, "9"))
				return err
			}); err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			stop := make(chan struct{})
			var flood sync.WaitGroup
			flood.Go(func() {
				datagram := make([]byte, 8900)
				for {
					select {
					case <-stop:
						return
					default:
						_, _ = c.Write(datagram) // no socket listens: ICMP errors from the LAN are expected
					}
				}
			})
			end := sync.OnceFunc(func() {
				close(stop)
				flood.Wait()
			})
			defer end()
			waits := func() uint64 {
				hosts := s.unit.Status().Hosts
				if len(hosts) != 1 || hosts[0].Traffic == nil {
					return 0
				}
				return hosts[0].Traffic.Channels[0].RxPortBusy
			}
			testenv.Eventually(t, func() bool { return waits() >= 2 }, "the I/O unit has waited for its card %d times", waits())
			end()
			// The netdevice may drop the ping until the frames that wait at the card have left.
			testenv.Run(t, s.hostNS, "ping", "-c", "1", "-i", "0.05", "-w", "20", lanAddr)
		})
	}
}
