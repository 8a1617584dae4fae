package endpoints

import (
	"net"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// shut lets a netdevice send 16 KiB, and then a jumbo frame in two seconds: at a lower rate the kernel
// drops such frames. Further frames wait in its queue, and are charged to the send buffers of their
// sockets. The function that it returns drops them, and lets the netdevice send again.
func shut(t *testing.T, ns, name string) (open func()) {
	t.Helper()
	const rate, burst = 4 << 10, 16 << 10 // bytes
	q := &netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: testenv.Link(t, ns, name).Attrs().Index, Parent: netlink.HANDLE_ROOT,
			Handle: netlink.MakeHandle(1, 0)},
		Rate: rate, Buffer: netlink.Xmittime(rate, burst), Limit: 64 << 20,
	}
	testenv.With(t, ns, func(h *netlink.Handle) error { return h.QdiscAdd(q) })
	return func() {
		t.Helper()
		testenv.With(t, ns, func(h *netlink.Handle) error { return h.QdiscDel(q) })
	}
}

// TestNetnsFullCard floods a card that is shut again and again. The I/O unit has to wait each time
// the card is full and there are frames to send, and to go on when the card has room again.
func TestNetnsFullCard(t *testing.T) {
	for _, kind := range []string{"macvtap", "packet"} {
		t.Run(kind, func(t *testing.T) {
			s := newTestbed(t, kind, 9000)
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
			channel := func() messaging.ChannelStats {
				hosts := s.unit.Status().Hosts
				if len(hosts) != 1 || hosts[0].Traffic == nil {
					return messaging.ChannelStats{}
				}
				return hosts[0].Traffic.Channels[0]
			}
			for i := range 2 {
				before := channel()
				open := shut(t, s.unitNS, "eth1")
				full := before
				testenv.Eventually(t, func() bool {
					full = channel()
					return full.RxPortBusy > before.RxPortBusy || full.RxDropped > before.RxDropped
				}, "the I/O unit does not wait for its card, which is shut for time %d", i+1)
				if n := full.RxDropped - before.RxDropped; n > 0 {
					t.Errorf("%d frames are dropped at a card that is shut", n)
				}
				open()
				testenv.Eventually(t, func() bool { return channel().RxFrames > full.RxFrames+1000 },
					"the I/O unit does not go on when its card is open")
			}
			end()
			// The netdevice may drop the ping until the frames that wait at the card have left.
			testenv.Run(t, s.hostNS, "ping", "-c", "1", "-i", "0.05", "-w", "60", lanAddr)
		})
	}
}
