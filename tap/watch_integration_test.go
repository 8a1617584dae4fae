package tap_test

import (
	"context"
	"errors"
	"net"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/tap"
)

// watched is a device with a running Watch.
type watched struct {
	t      *testing.T
	dev    *tap.Device
	ns     string
	states chan tap.State
	last   tap.State
	ended  chan error
	stop   context.CancelFunc
}

func watch(t *testing.T, open func(tap.Config) (*tap.Device, error)) *watched {
	t.Helper()
	testenv.NeedTUN(t)
	testenv.NeedTools(t, "ip", "bridge")
	testenv.NoLeaks(t)
	d, ns := device(t, open, nil, tap.Config{MAC: testMAC})
	ctx, stop := context.WithCancel(t.Context())
	w := &watched{t: t, dev: d, ns: ns, states: make(chan tap.State, 1000), ended: make(chan error, 1), stop: stop}
	go func() { w.ended <- d.Watch(ctx, func(s tap.State) { w.states <- s }) }()
	t.Cleanup(func() {
		stop()
		if err := <-w.ended; err != nil {
			t.Errorf("Watch: %v", err)
		}
	})
	w.await("the state at the beginning", func(s tap.State) bool {
		return s.Up && slices.Equal(s.MAC, testMAC) && s.MTU == 1500 && !s.Promisc && !s.AllMulti && !s.Trunk &&
			len(s.VLANs) == 0
	})
	return w
}

// await waits until Watch reports a state for which cond returns true.
func (w *watched) await(what string, cond func(tap.State) bool) {
	w.t.Helper()
	late := time.After(testenv.Patience)
	for {
		select {
		case s := <-w.states:
			if reflect.DeepEqual(s, w.last) {
				w.t.Errorf("no change was reported as one: %+v", s)
			}
			if w.last = s; cond(s) {
				return
			}
		case err := <-w.ended:
			w.ended <- err
			w.t.Fatalf("waiting for %s: Watch ended: %v", what, err)
		case <-late:
			w.t.Fatalf("waited in vain for %s; last: %+v", what, w.last)
		}
	}
}

func (w *watched) ip(args string) {
	w.t.Helper()
	testenv.Run(w.t, w.ns, "ip", strings.Fields(args)...)
}

func has(list []net.HardwareAddr, mac string) bool {
	return slices.ContainsFunc(list, func(m net.HardwareAddr) bool { return m.String() == mac })
}

func TestNetnsWatch(t *testing.T) {
	for kind, open := range openers {
		t.Run(kind, func(t *testing.T) {
			w := watch(t, open)
			w.ip("link set sn0 address 02:00:00:00:00:77")
			w.await("the MAC address", func(s tap.State) bool { return s.MAC.String() == "02:00:00:00:00:77" })
			w.ip("link set sn0 mtu 1400")
			w.await("the MTU", func(s tap.State) bool { return s.MTU == 1400 })
			w.ip("link set sn0 down")
			w.await("down", func(s tap.State) bool { return !s.Up })
			w.ip("link set sn0 up")
			w.await("up", func(s tap.State) bool { return s.Up })
			w.ip("link set sn0 promisc on")
			w.await("promisc", func(s tap.State) bool { return s.Promisc && s.PromiscSet })
			w.ip("link set sn0 promisc off")
			w.await("no promisc", func(s tap.State) bool { return !s.Promisc && !s.PromiscSet })
			w.ip("link set sn0 allmulticast on")
			w.await("allmulticast", func(s tap.State) bool { return s.AllMulti && s.AllMultiSet })
			w.ip("link set sn0 allmulticast off")
			w.await("no allmulticast", func(s tap.State) bool { return !s.AllMulti && !s.AllMultiSet })
			w.ip("maddr add 01:00:5e:01:02:03 dev sn0")
			w.await("a group", func(s tap.State) bool { return has(s.Multicast, "01:00:5e:01:02:03") })
			w.ip("maddr del 01:00:5e:01:02:03 dev sn0")
			w.await("no group", func(s tap.State) bool { return !has(s.Multicast, "01:00:5e:01:02:03") })
			testenv.Run(t, w.ns, "bridge", "fdb", "add", "02:00:00:00:00:99", "dev", "sn0", "self")
			w.await("another address", func(s tap.State) bool { return has(s.Unicast, "02:00:00:00:00:99") && !s.Promisc })
			w.ip("link set sn0 promisc on")
			w.await("promisc with another address", func(s tap.State) bool { return s.Promisc })
			w.ip("link set sn0 promisc off")
			w.await("no promisc with another address", func(s tap.State) bool { return !s.Promisc })
			testenv.Run(t, w.ns, "bridge", "fdb", "del", "02:00:00:00:00:99", "dev", "sn0", "self")
			w.await("one address", func(s tap.State) bool { return len(s.Unicast) == 0 && !s.Promisc })
		})
	}
}

// TestNetnsWatchPaced changes the device while reads have to pause, as after many of them in a
// namespace with thousands of devices. Nothing may be read meanwhile, and afterwards the last
// change must be reported.
func TestNetnsWatchPaced(t *testing.T) {
	testenv.NeedTUN(t)
	testenv.NeedTools(t, "ip")
	testenv.NoLeaks(t)
	d, ns := device(t, openers["vnet"], nil, tap.Config{MAC: testMAC})
	resting, rested := make(chan struct{}), make(chan struct{})
	w := &watched{t: t, dev: d, ns: ns, states: make(chan tap.State, 1000), ended: make(chan error, 1)}
	ctx, stop := context.WithCancel(t.Context())
	paused := false
	go func() {
		w.ended <- d.Watch(ctx, func(s tap.State) {
			if !paused {
				paused = true
				d.Pause(func() {
					close(resting)
					select {
					case <-rested:
					case <-ctx.Done():
					}
				})
			}
			w.states <- s
		})
	}()
	defer func() {
		stop()
		if err := <-w.ended; err != nil {
			t.Errorf("Watch: %v", err)
		}
	}()
	w.await("the state at the beginning", func(s tap.State) bool { return s.MTU == 1500 })
	for mtu := 1300; mtu <= 1400; mtu += 10 {
		w.ip("link set sn0 mtu " + strconv.Itoa(mtu))
		if mtu == 1300 {
			select {
			case <-resting:
			case s := <-w.states:
				t.Fatalf("a read without a pause: %+v", s)
			}
		}
	}
	close(rested)
	w.await("the last change", func(s tap.State) bool { return s.MTU == 1400 })
}

// TestNetnsWatchPacketSocket changes the device's receive filter as tcpdump and multicast receivers
// do, and expects Watch to report the changes.
func TestNetnsWatchPacketSocket(t *testing.T) {
	w := watch(t, tap.Open)
	index := testenv.Link(t, w.ns, "sn0").Attrs().Index
	member := func(kind uint16) (leave func()) {
		t.Helper()
		var fd int
		err := netns.Do(w.ns, func() (err error) {
			fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
			return err
		})
		if err == nil {
			err = unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP,
				&unix.PacketMreq{Ifindex: int32(index), Type: kind})
		}
		if err != nil {
			t.Fatal(err)
		}
		return func() { unix.Close(fd) }
	}
	leave := member(unix.PACKET_MR_PROMISC)
	w.await("promisc", func(s tap.State) bool { return s.Promisc && !s.PromiscSet })
	leave()
	w.await("no promisc", func(s tap.State) bool { return !s.Promisc })
	leave = member(unix.PACKET_MR_ALLMULTI)
	w.await("allmulti", func(s tap.State) bool { return s.AllMulti && !s.AllMultiSet })
	leave()
	w.await("no allmulti", func(s tap.State) bool { return !s.AllMulti })

	group := net.IPv4(239, 1, 2, 3)
	testenv.Address(t, w.ns, "sn0", "10.9.0.1/24")
	var c *net.UDPConn
	err := netns.Do(w.ns, func() (err error) {
		c, err = net.ListenMulticastUDP("udp4", &net.Interface{Index: index}, &net.UDPAddr{IP: group, Port: 5353})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	w.await("the group", func(s tap.State) bool { return has(s.Multicast, "01:00:5e:01:02:03") })
	c.Close()
	w.await("no group", func(s tap.State) bool { return !has(s.Multicast, "01:00:5e:01:02:03") })
}

// TestNetnsWatchAndState changes the device, reads the state, and changes the device back, perhaps
// before Watch has read the first change. Watch has to report the last change, which differs from
// the state that State returned.
func TestNetnsWatchAndState(t *testing.T) {
	w := watch(t, tap.Open)
	const group = "01:00:5e:01:02:03"
	w.ip("maddr add " + group + " dev sn0")
	s, err := w.dev.State()
	if err != nil || !has(s.Multicast, group) {
		t.Fatalf("%+v, %v", s, err)
	}
	for len(w.states) > 0 {
		<-w.states // Watch may have reported the change already
	}
	w.last = tap.State{} // the next state may equal the first one
	w.ip("maddr del " + group + " dev sn0")
	w.await("no group", func(s tap.State) bool { return !has(s.Multicast, group) })
}

// TestNetnsWatchStacked stacks devices on the device, one of them in another network namespace, as
// container runtimes do. It expects Watch to report them.
func TestNetnsWatchStacked(t *testing.T) {
	w := watch(t, tap.Open)
	pod := testenv.NetNS(t)
	w.ip("link add link sn0 name mv0 type macvlan mode bridge")
	w.await("a macvlan", func(s tap.State) bool { return s.Trunk })
	w.ip("link delete mv0")
	w.await("no macvlan", func(s tap.State) bool { return !s.Trunk })

	w.ip("link add link sn0 name mv0 netns " + pod + " type macvlan mode bridge")
	testenv.Run(t, pod, "ip", "link", "set", "mv0", "address", "02:00:00:00:00:55", "up")
	w.await("one that is elsewhere", func(s tap.State) bool { return s.Trunk && has(s.Unicast, "02:00:00:00:00:55") })
	testenv.Run(t, pod, "ip", "link", "delete", "mv0")
	w.await("no macvlan", func(s tap.State) bool { return !s.Trunk && len(s.Unicast) == 0 })

	testenv.Bridge(t, w.ns, "br0", "sn0")
	w.await("a bridge", func(s tap.State) bool { return s.Trunk && s.Promisc && !s.PromiscSet })
	w.ip("maddr add 01:00:5e:01:02:04 dev sn0")
	w.await("a group of a bridge's port", func(s tap.State) bool { return has(s.Multicast, "01:00:5e:01:02:04") })
	w.ip("link set sn0 nomaster")
	w.await("no bridge", func(s tap.State) bool { return !s.Trunk && !s.Promisc })
}

// TestRDMAWatchVLAN stacks VLAN devices on the device, and moves them to another namespace. It
// belongs to the softroce layer because some kernels of the netns layer have no VLAN devices.
// Kernels with RDMA devices have VLAN devices.
func TestRDMAWatchVLAN(t *testing.T) {
	testenv.NeedRDMA(t, 1)
	w := watch(t, tap.Open)
	pod := testenv.NetNS(t)
	vlans := func(want ...int) func(tap.State) bool {
		return func(s tap.State) bool { return slices.Equal(s.VLANs, want) && !s.Trunk }
	}
	w.ip("link add link sn0 name sn0.20 type vlan id 20")
	w.await("VLAN 20", vlans(20))
	w.ip("link add link sn0 name sn0.5 type vlan id 5")
	w.await("two VLANs", vlans(5, 20))
	w.ip("link set sn0.20 netns " + pod)
	testenv.Eventually(t, func() bool { return testenv.Link(t, pod, "sn0.20") != nil }, "sn0.20 does not move")
	w.ip("link delete sn0.5")
	w.await("the VLAN in the other namespace alone", vlans(20))
	testenv.With(t, pod, func(h *netlink.Handle) error { return h.LinkDel(testenv.Link(t, pod, "sn0.20")) })
	w.await("no VLAN", vlans())
	w.ip("link add link sn0 name pod0 netns " + pod + " type vlan id 7")
	w.await("a VLAN made in the other namespace", vlans(7))
	testenv.Run(t, pod, "ip", "link", "delete", "pod0")
	w.await("none", vlans())
}

// TestNetnsWatchMoved renames the device and moves it to another namespace. Watch has to continue.
func TestNetnsWatchMoved(t *testing.T) {
	w := watch(t, tap.Open)
	elsewhere := testenv.NetNS(t)
	// With other devices in the other namespace, the device gets another index there.
	testenv.Bridge(t, elsewhere, "br0")
	w.ip("link set sn0 down")
	w.ip("link set sn0 name lan7")
	w.ip("link set lan7 netns " + elsewhere)
	testenv.Eventually(t, func() bool { return testenv.Link(t, elsewhere, "lan7") != nil }, "the device does not move")
	for i, mtu := range []string{"1401", "1402"} {
		testenv.Run(t, elsewhere, "ip", "link", "set", "lan7", "mtu", mtu)
		w.await("the MTU in the new namespace", func(s tap.State) bool { return s.MTU == 1401+i })
	}
	testenv.Run(t, elsewhere, "ip", "link", "add", "link", "lan7", "name", "mv0", "type", "macvlan")
	w.await("a macvlan in the new namespace", func(s tap.State) bool { return s.Trunk })
	testenv.Run(t, elsewhere, "ip", "maddr", "add", "01:00:5e:01:02:05", "dev", "lan7")
	w.await("a group in the new namespace", func(s tap.State) bool { return has(s.Multicast, "01:00:5e:01:02:05") })
}

func TestNetnsWatchDeleted(t *testing.T) {
	for kind, open := range openers {
		t.Run(kind, func(t *testing.T) {
			w := watch(t, open)
			w.ip("link delete sn0")
			err := <-w.ended
			w.ended <- nil
			if !errors.Is(err, tap.ErrGone) || !errors.Is(err, unix.EBADFD) {
				t.Errorf("Watch: %v", err)
			}
			if _, err := w.dev.State(); !errors.Is(err, tap.ErrGone) {
				t.Errorf("State: %v", err)
			}
		})
	}
}

func TestNetnsSetters(t *testing.T) {
	w := watch(t, tap.Open)
	for _, step := range []struct {
		what string
		do   func() error
		cond func(tap.State) bool
	}{
		{"promisc", func() error { return w.dev.SetPromisc(true) }, func(s tap.State) bool { return s.PromiscSet }},
		{"no promisc", func() error { return w.dev.SetPromisc(false) }, func(s tap.State) bool { return !s.Promisc }},
		{"allmulti", func() error { return w.dev.SetAllMulti(true) }, func(s tap.State) bool { return s.AllMultiSet }},
		{"no allmulti", func() error { return w.dev.SetAllMulti(false) }, func(s tap.State) bool { return !s.AllMulti }},
		{"down", func() error { return w.dev.SetUp(false) }, func(s tap.State) bool { return !s.Up }},
		{"up", func() error { return w.dev.SetUp(true) }, func(s tap.State) bool { return s.Up }},
	} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		w.await(step.what, step.cond)
	}
	w.stop()
	err := <-w.ended
	w.ended <- err
	if err != nil {
		t.Errorf("Watch after its context's end: %v", err)
	}
	w.dev.Close()
	if _, err := w.dev.State(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("State after Close: %v", err)
	}
}

// BenchmarkNetnsWatchIdle watches a device that does not change. It reports the cost as a
// share of a processor.
func BenchmarkNetnsWatchIdle(b *testing.B) {
	testenv.NeedTUN(b)
	ns := testenv.NetNS(b)
	d, err := tap.Open(tap.Config{Name: "sn0", NetNS: ns})
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	for b.Loop() {
		ctx, stop := context.WithTimeout(b.Context(), testenv.Patience)
		before, started := processorTime(b), time.Now()
		if err := d.Watch(ctx, func(tap.State) {}); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(processorTime(b)-before)/float64(time.Since(started))*100, "%cpu")
		stop()
	}
}

func processorTime(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(unix.TimevalToNsec(u.Utime) + unix.TimevalToNsec(u.Stime))
}
