package lan

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/vnet"
)

// routeSockets returns the number of NETLINK_ROUTE sockets in a network namespace.
func routeSockets(t *testing.T, ns string) int {
	t.Helper()
	var table []byte
	err := netns.Do(ns, func() (err error) {
		table, err = os.ReadFile("/proc/thread-self/net/netlink")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, line := range strings.Split(string(table), "\n")[1:] {
		// The kernel's own socket has port 0.
		if f := strings.Fields(line); len(f) > 2 && f[1] == "0" && f[2] != "0" {
			n++
		}
	}
	return n
}

// sharedCard is a card with watched ports.
type sharedCard struct {
	t     *testing.T
	ns    string
	card  *Card
	ports int
	looks atomic.Int64 // number of queries of the card by the follower
	mtu   int
	heard chan int // MTUs that the watcher of the first port was told
}

// newSharedCard makes a card, and opens and watches the first port.
func newSharedCard(t *testing.T, spec string) *sharedCard {
	t.Helper()
	c := &sharedCard{t: t, ns: testenv.NetNS(t), mtu: 1500, heard: make(chan int, 16)}
	testenv.DisableIPv6(t, c.ns)
	testenv.Veth(t, c.ns, "eth1", testenv.NetNS(t), "eth0")
	if strings.HasPrefix(spec, "tap:") {
		testenv.Bridge(t, c.ns, "br0", "eth1")
	}
	var err error
	if c.card, err = NewCard(spec, c.ns); err != nil {
		t.Fatal(err)
	}
	c.join(func(s LinkState) { c.heard <- s.MTU })
	<-c.heard
	s, _, err := c.card.at.(*netdevice).use()
	if err != nil {
		t.Fatal(err)
	}
	defer s.release()
	s.follower.mu.Lock()
	defer s.follower.mu.Unlock()
	s.follower.looked = func() { c.looks.Add(1) }
	return c
}

// join opens another port and watches it until the test ends. fn is called with each state.
func (c *sharedCard) join(fn func(LinkState)) {
	c.t.Helper()
	p, err := c.card.Open(Config{MAC: net.HardwareAddr{2, 0, 0, 0, 7, byte(c.ports)}, Offloads: vnet.AllOffloads})
	if err != nil {
		c.t.Fatal(err)
	}
	c.ports++
	ctx, cancel := context.WithCancel(context.Background())
	begun, ended := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		ended <- p.Watch(ctx, func(s LinkState) {
			select {
			case begun <- struct{}{}:
			default:
			}
			fn(s)
		})
	}()
	c.t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-ended, p.Close()); err != nil {
			c.t.Error(err)
		}
	})
	select {
	case <-begun:
	case err := <-ended:
		c.t.Fatalf("a port is not watched: %v", err)
	}
}

// settle waits until the follower has processed all messages so far.
func (c *sharedCard) settle() {
	c.t.Helper()
	c.mtu--
	s, link, err := c.card.at.(*netdevice).use()
	if err != nil {
		c.t.Fatal(err)
	}
	defer s.release()
	if err := s.handle.LinkSetMTU(link, c.mtu); err != nil {
		c.t.Fatal(err)
	}
	c.hears(c.mtu)
}

// hears waits until the watcher of the first port was told this MTU.
func (c *sharedCard) hears(mtu int) {
	c.t.Helper()
	for late := time.After(testenv.Patience); ; {
		select {
		case heard := <-c.heard:
			if heard == mtu {
				return
			}
		case <-late:
			c.t.Fatalf("the MTU %d of the card is not heard of", mtu)
		}
	}
}

// TestNetnsLostMessages causes more messages about links than the kernel can keep while
// the follower reads none, so that the kernel loses some. It changes the card again after
// the follower has got the error about the loss, and before the follower has read the
// waiting messages. Until then the kernel loses further messages without an error. The
// change has to be reported nevertheless. On a busy machine, the first that the follower gets is
// the error.
func TestNetnsLostMessages(t *testing.T) {
	testenv.NoLeaks(t)
	c := newSharedCard(t, "packet:eth1")
	testenv.Veth(t, c.ns, "other", c.ns, "peer")
	s, card, err := c.card.at.(*netdevice).use()
	if err != nil {
		t.Fatal(err)
	}
	defer s.release()
	h, err := netns.Handle(c.ns)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	other, err := h.LinkByName("other")
	if err != nil {
		t.Fatal(err)
	}
	c.settle()

	f := &s.follower
	f.mu.Lock() // the follower waits for the mutex after the first message about the card
	if err := h.LinkSetMTU(card, 1400); err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		if err := h.LinkSetMTU(other, 1400+i%2); err != nil {
			t.Fatal(err)
		}
	}
	looks := 0
	f.looked = func() {
		if looks++; looks <= 2 { // the first or the second one is after the loss
			if err := h.LinkSetMTU(card, 1400-100*looks); err != nil {
				t.Error(err)
			}
		}
	}
	f.mu.Unlock()
	c.hears(1200)
}

// TestNetnsPortsShare opens many ports on a card. It expects no further netlink socket for a port,
// and a number of queries of the card for a new port that does not depend on the number of ports.
func TestNetnsPortsShare(t *testing.T) {
	testenv.NeedTUN(t)
	for _, spec := range []string{"macvtap:eth1", "packet:eth1", "tap:br0"} {
		t.Run(spec, func(t *testing.T) {
			testenv.NoLeaks(t)
			c := newSharedCard(t, spec)
			joining := func() int64 {
				c.settle()
				before := c.looks.Load()
				c.join(func(LinkState) {})
				c.settle()
				return c.looks.Load() - before
			}
			sockets, few := routeSockets(t, c.ns), joining()
			for c.ports < 40 {
				c.join(func(LinkState) {})
			}
			// The kernel may combine messages, and messages about other devices may come between
			// them. So the cost of a port is the least of several numbers.
			if many := min(joining(), joining(), joining(), joining()); many > few+2 {
				t.Errorf("%d looks at the card for port %d, %d for the second", many, c.ports, few)
			}
			if spec == "tap:br0" {
				return // each TAP device has netlink sockets of its own
			}
			if n := routeSockets(t, c.ns); n != sockets {
				t.Errorf("%d netlink sockets with %d ports, %d with one", n, c.ports, sockets)
			}
		})
	}
}

// TestNetnsCardAgain removes a card and makes a card with the same name. It expects ErrGone for the
// port on the first card, and a new port to be on the second card.
func TestNetnsCardAgain(t *testing.T) {
	testenv.NeedTUN(t)
	testenv.NoLeaks(t)
	ns := testenv.NetNS(t)
	testenv.DisableIPv6(t, ns)
	card, err := NewCard("eth1", ns)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		testenv.Veth(t, ns, "eth1", testenv.NetNS(t), "eth0")
		p, err := card.Open(Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		if info, err := card.Info(); err != nil || info.Index != testenv.Link(t, ns, "eth1").Attrs().Index {
			t.Errorf("%+v, %v", info, err)
		}
		ended := make(chan error, 1)
		begun := make(chan LinkState, 16)
		go func() { ended <- p.Watch(t.Context(), func(s LinkState) { begun <- s }) }()
		<-begun
		testenv.With(t, ns, func(h *netlink.Handle) error { return h.LinkDel(testenv.Link(t, ns, "eth1")) })
		if err := <-ended; !errors.Is(err, ErrGone) {
			t.Errorf("after the card went: %v", err)
		}
	}
	if _, err := card.Info(); err == nil {
		t.Error("there is a card that was removed")
	}
}

// TestNetnsAnnouncedOutside announces a host on one of two ports. It expects the LAN to receive the
// announcement, and the other port on the card not to.
func TestNetnsAnnouncedOutside(t *testing.T) {
	testenv.NeedTUN(t)
	for _, kind := range []string{"macvtap", "packet"} {
		t.Run(kind, func(t *testing.T) {
			testenv.NoLeaks(t)
			ns, outside := testenv.NetNS(t), testenv.NetNS(t)
			testenv.DisableIPv6(t, ns)
			testenv.DisableIPv6(t, outside)
			testenv.Veth(t, ns, "eth1", outside, "eth0")
			card, err := NewCard(kind+":eth1", ns)
			if err != nil {
				t.Fatal(err)
			}
			var ports []Interface
			for i := range 2 {
				p, err := card.Open(Config{MAC: net.HardwareAddr{2, 0, 0, 0, 7, byte(i)}, Offloads: vnet.AllOffloads})
				if err != nil {
					t.Fatal(err)
				}
				defer p.Close()
				ports = append(ports, p)
			}
			listener := testenv.ListenRaw(t, outside, "eth0")
			frame := func(kind byte) []byte {
				f := make([]byte, vnet.HdrLen+60)
				copy(f[vnet.HdrLen:], broadcast)
				copy(f[vnet.HdrLen+6:], ports[0].MAC())
				f[vnet.HdrLen+12], f[vnet.HdrLen+13] = 0x88, kind
				return f
			}
			const announced, sent = 0xb5, 0xb6
			if err := ports[0].Announce(frame(announced)); err != nil {
				t.Fatal(err)
			}
			is := func(kind byte) func([]byte) bool {
				return func(f []byte) bool {
					return len(f) >= vnet.MinFrame && f[vnet.HdrLen+12] == 0x88 && f[vnet.HdrLen+13] == kind
				}
			}
			if got, _ := listener.Next(is(announced)); !bytes.Equal(got[vnet.HdrLen+6:][:6], ports[0].MAC()) {
				t.Errorf("the LAN has heard % x", got)
			}
			// The other port has to receive a frame that the host sends, and no announcement before
			// that frame.
			if err := testenv.WriteFrame(ports[0].Queues()[0], frame(sent)); err != nil {
				t.Fatal(err)
			}
			slot := make([]byte, vnet.Headroom+vnet.MaxFrame+1)
			testenv.Eventually(t, func() bool {
				got, err := testenv.ReadFrame(ports[1].Queues()[0], slot)
				if err != nil {
					return false
				}
				if is(announced)(got) {
					t.Error("another port has a copy of the announcement")
				}
				return is(sent)(got)
			}, "the other port has nothing of what the host sends")
		})
	}
}
