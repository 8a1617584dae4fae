package endpoints

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/iounit"
	"github.com/splitnic/splitnic/tap"
	"github.com/splitnic/splitnic/tap/steer"
	"github.com/splitnic/splitnic/vnet"
)

// testbed is a host, an I/O unit and a LAN with real netdevices, each in its own network namespace,
// with a fabric in memory between the endpoints.
type testbed struct {
	world                 *world
	hostNS, unitNS, lanNS string
	netdev                *tap.Device
	host                  *host.Host
	unit                  *iounit.Unit
	run                   *running // the host
}

const (
	lanAddr  = "10.78.0.1"
	lanAddr6 = "fd78::1"
)

func newTestbed(t *testing.T, kind string, mtu int) *testbed {
	return newQueuedTestbed(t, kind, mtu, 1, 1)
}

// newQueuedTestbed is newTestbed with the number of queues that the host wants and that the I/O
// unit grants.
func newQueuedTestbed(t *testing.T, kind string, mtu, wanted, granted int) *testbed {
	t.Helper()
	return newSteeredTestbed(t, kind, mtu, wanted, granted, nil)
}

// newSteeredTestbed is newQueuedTestbed with a latency queue, which is one of those
// wanted, if classes are given.
func newSteeredTestbed(t *testing.T, kind string, mtu, wanted, granted int, classes *steer.Classes) *testbed {
	t.Helper()
	testenv.NeedRoot(t)
	testenv.NeedTUN(t)
	testenv.NeedTools(t, "ping", "ethtool")
	w := newWorld(t)
	s := &testbed{world: w, hostNS: testenv.NetNS(t), unitNS: testenv.NetNS(t), lanNS: testenv.NetNS(t)}
	s.unit = w.unitOnVeth(s.unitNS, s.lanNS, kind, mtu, granted, func(c *iounit.Config) { c.Latency = classes })
	dev, err := tap.Open(tap.Config{Name: "sn0", NetNS: s.hostNS, Queues: wanted, Offloads: vnet.AllOffloads})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := dev.Up(); err != nil {
		t.Fatal(err)
	}
	s.netdev = dev
	_, s.host, s.run = w.host("alpha", func(c *host.Config) {
		c.Netdev, c.Latency, c.AskAgain = host.TAP(dev), classes, time.Second
	})
	testenv.Eventually(t, s.carrier(t), "sn0 has no carrier")
	// The host is ready before the I/O unit.
	testenv.Eventually(t, func() bool { return len(s.unit.Status().Hosts) == 1 }, "the I/O unit has no host")
	testenv.Address(t, s.hostNS, "sn0", "10.78.0.2/24")
	testenv.Address(t, s.hostNS, "sn0", "fd78::2/64")
	return s
}

// unitOnVeth starts an I/O unit whose card is a veth in namespace unitNS, with the LAN at the other
// end, in lanNS.
func (w *world) unitOnVeth(
	unitNS, lanNS, kind string, mtu, queues int, change ...func(*iounit.Config),
) *iounit.Unit {
	t := w.t
	t.Helper()
	testenv.Veth(t, unitNS, "eth1", lanNS, "lan0")
	for ns, name := range map[string]string{unitNS: "eth1", lanNS: "lan0"} {
		testenv.With(t, ns, func(h *netlink.Handle) error {
			return h.LinkSetMTU(testenv.Link(t, ns, name), mtu)
		})
		testenv.Up(t, ns, name)
	}
	testenv.Address(t, lanNS, "lan0", lanAddr+"/24")
	testenv.Address(t, lanNS, "lan0", lanAddr6+"/64")
	nic := "eth1"
	if kind == "tap" {
		nic = "br0"
		testenv.Bridge(t, unitNS, nic, "eth1")
	}
	open := func(c lan.Config) (lan.Interface, error) {
		c.NetNS, c.Offloads = unitNS, vnet.AllOffloads
		return lan.Open(kind+":"+nic, c)
	}
	u, _ := w.unit(append([]func(*iounit.Config){func(c *iounit.Config) {
		c.MaxQueues = queues
		c.OpenLAN = func(mac net.HardwareAddr, queues int) (lan.Interface, error) {
			return open(lan.Config{MAC: mac, Queues: queues})
		}
		c.OpenLatencyLAN = func(mac net.HardwareAddr, rule steer.Rule) (lan.Interface, error) {
			return open(lan.Config{MAC: mac, Queues: rule.Queues, Latency: &rule})
		}
		c.LinkState = func() (lan.LinkState, error) {
			info, err := lan.LinkInfo(nic, unitNS)
			return info.LinkState, err
		}
	}}, change...)...)
	return u
}

func (s *testbed) carrier(t *testing.T) func() bool {
	return func() bool { return testenv.Link(t, s.hostNS, "sn0").Attrs().OperState == netlink.OperUp }
}

// TestNetnsPing sends pings of many sizes, with several MTUs of the card.
func TestNetnsPing(t *testing.T) {
	for _, kind := range []string{"macvtap", "packet"} {
		for _, mtu := range []int{1500, 9000} {
			t.Run(fmt.Sprintf("%s mtu %d", kind, mtu), func(t *testing.T) {
				s := newTestbed(t, kind, mtu)
				if got := testenv.Link(t, s.hostNS, "sn0").Attrs().MTU; got != mtu {
					t.Errorf("sn0 has MTU %d", got)
				}
				// The I/O unit's card is a veth.
				if out := testenv.Run(t, s.hostNS, "ethtool", "sn0"); !strings.Contains(out, "Speed: 10000Mb/s") {
					t.Errorf("sn0 does not have the speed of the card:\n%s", out)
				}
				for _, size := range []int{0, 1, 56, mtu - 28, mtu - 27, 20000, 65507} {
					for _, addr := range []string{lanAddr, lanAddr6} {
						if addr == lanAddr6 && size == 65507 {
							size = 65487 // the header is longer
						}
						testenv.Run(t, s.hostNS, "ping", "-c", "2", "-i", "0.01", "-W", "10", "-s", fmt.Sprint(size), addr)
					}
				}
			})
		}
	}
}

// lively is a connection that fails if nothing is read or written for two minutes.
type lively struct{ net.Conn }

func (l lively) Read(b []byte) (int, error) {
	if err := l.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		return 0, err
	}
	return l.Conn.Read(b)
}

func (l lively) Write(b []byte) (int, error) {
	if err := l.SetWriteDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		return 0, err
	}
	return l.Conn.Write(b)
}

// transfer sends n random bytes over TCP from one namespace to another, and compares the bytes that
// arrive.
func transfer(from, to, addr string, seed uint64, n int64) error {
	var ln net.Listener
	err := netns.Do(to, func() (err error) {
		ln, err = net.Listen("tcp", net.JoinHostPort(addr, "0"))
		return err
	})
	if err != nil {
		return err
	}
	defer ln.Close()
	var c net.Conn
	err = netns.Do(from, func() (err error) {
		c, err = net.DialTimeout("tcp", ln.Addr().String(), testenv.Patience)
		return err
	})
	if err != nil {
		return err
	}
	defer c.Close()
	peer, err := ln.Accept()
	if err != nil {
		return err
	}
	defer peer.Close()
	sent, got := sha256.New(), sha256.New()
	errs := make(chan error, 1)
	go func() {
		var key [32]byte
		key[0] = byte(seed)
		_, err := io.Copy(io.MultiWriter(lively{c}, sent), io.LimitReader(rand.NewChaCha8(key), n))
		errs <- errors.Join(err, c.Close())
	}()
	m, err := io.Copy(got, lively{peer})
	if err := errors.Join(err, <-errs); err != nil {
		return fmt.Errorf("after %d of %d bytes: %w", m, n, err)
	}
	if m != n || string(sent.Sum(nil)) != string(got.Sum(nil)) {
		return fmt.Errorf("%d bytes arrived, differing from the %d sent", m, n)
	}
	return nil
}

// TestNetnsTCP expects TCP streams to cross complete, and as super-frames.
func TestNetnsTCP(t *testing.T) {
	for _, kind := range []string{"macvtap", "packet"} {
		t.Run(kind, func(t *testing.T) {
			s := newTestbed(t, kind, 1500)
			const n = 64 << 20
			for i, way := range [][3]string{
				{s.hostNS, s.lanNS, lanAddr}, {s.lanNS, s.hostNS, "10.78.0.2"},
				{s.hostNS, s.lanNS, lanAddr6}, {s.lanNS, s.hostNS, "fd78::2"},
			} {
				if err := transfer(way[0], way[1], way[2], uint64(i), n); err != nil {
					t.Fatalf("to %s: %v", way[2], err)
				}
			}
			c := s.host.Status().Traffic.Channels[0]
			for way, avg := range map[string]uint64{
				"host to LAN": c.TxBytes / c.TxFrames, "LAN to host": c.RxBytes / c.RxFrames,
			} {
				// Half of the frames are acknowledgements of the other direction.
				if avg < 5000 {
					t.Errorf("%s: %d bytes in a frame on average: no super-frames", way, avg)
				}
			}
			for _, ns := range []string{s.hostNS, s.lanNS} {
				out := testenv.Run(t, ns, "cat", "/proc/net/snmp")
				if e := inErrors(out); e != "0" {
					t.Errorf("TCP segments with wrong checksums or otherwise bad: %s", e)
				}
			}
		})
	}
}

// inErrors returns InCsumErrors of TCP in /proc/net/snmp.
func inErrors(snmp string) string {
	var names []string
	for line := range strings.SplitSeq(snmp, "\n") {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] != "Tcp:" {
			continue
		}
		if names == nil {
			names = f
			continue
		}
		for i, name := range names {
			if name == "InCsumErrors" {
				return f[i]
			}
		}
	}
	return "not found"
}

// TestNetnsQueues uses as many queues as the I/O unit grants. Streams have to cross complete, and
// no frame may go into an unused queue.
func TestNetnsQueues(t *testing.T) {
	for _, kind := range []string{"macvtap", "packet"} {
		for _, n := range []struct{ wanted, granted int }{{2, 2}, {4, 2}, {1, 4}} {
			t.Run(fmt.Sprintf("%s %d of %d", kind, n.granted, n.wanted), func(t *testing.T) {
				s := newQueuedTestbed(t, kind, 1500, n.wanted, n.granted)
				var wg sync.WaitGroup
				for i := range 16 {
					wg.Go(func() {
						from, to, addr := s.hostNS, s.lanNS, lanAddr
						if i%2 == 1 {
							from, to, addr = s.lanNS, s.hostNS, "10.78.0.2"
						}
						if err := transfer(from, to, addr, uint64(i), 4<<20); err != nil {
							t.Errorf("stream %d: %v", i, err)
						}
					})
				}
				wg.Wait()
				channels := s.host.Status().Traffic.Channels
				if len(channels) != min(n.wanted, n.granted) {
					t.Errorf("%d data channels", len(channels))
				}
				for i, c := range channels {
					if c.TxFrames == 0 || c.RxFrames == 0 {
						t.Errorf("queue %d carried %d frames out and %d in", i, c.TxFrames, c.RxFrames)
					}
				}
			})
		}
	}
}

// TestNetnsCarrier takes the card's link down and changes the card's MTU.
func TestNetnsCarrier(t *testing.T) {
	s := newTestbed(t, "macvtap", 1500)
	set := func(up bool) {
		testenv.With(t, s.lanNS, func(h *netlink.Handle) error {
			l := testenv.Link(t, s.lanNS, "lan0")
			if up {
				return h.LinkSetUp(l)
			}
			return h.LinkSetDown(l)
		})
	}
	set(false)
	testenv.Eventually(t, func() bool { return !s.carrier(t)() }, "sn0 keeps its carrier without a cable")
	set(true)
	testenv.Eventually(t, s.carrier(t), "sn0 has no carrier with the cable back")
	for _, mtu := range []int{9000, 1300, 1500} {
		testenv.With(t, s.unitNS, func(h *netlink.Handle) error {
			return h.LinkSetMTU(testenv.Link(t, s.unitNS, "eth1"), mtu)
		})
		testenv.Eventually(t, func() bool { return testenv.Link(t, s.hostNS, "sn0").Attrs().MTU == mtu },
			"sn0 does not follow to MTU %d", mtu)
	}
	testenv.Run(t, s.hostNS, "ping", "-c", "2", "-i", "0.01", "-W", "10", lanAddr)
}

// TestNetnsCardDown takes the card administratively down, which a packet socket reports as an
// error, and expects that the session goes on.
func TestNetnsCardDown(t *testing.T) {
	for _, kind := range []string{"macvtap", "packet"} {
		t.Run(kind, func(t *testing.T) {
			s := newTestbed(t, kind, 1500)
			for range 2 {
				testenv.With(t, s.unitNS, func(h *netlink.Handle) error { return h.LinkSetDown(testenv.Link(t, s.unitNS, "eth1")) })
				testenv.Eventually(t, func() bool { return !s.carrier(t)() }, "sn0 keeps its carrier")
				testenv.Up(t, s.unitNS, "eth1")
				testenv.Eventually(t, s.carrier(t), "sn0 has no carrier")
			}
			testenv.Run(t, s.hostNS, "ping", "-c", "2", "-i", "0.01", "-W", "10", lanAddr)
			if n := s.host.Status().Sessions; n != 1 {
				t.Errorf("%d sessions", n)
			}
		})
	}
}

// TestNetnsNetdeviceDeleted deletes the netdevice of a running host, and expects the host to end
// with an error.
func TestNetnsNetdeviceDeleted(t *testing.T) {
	s := newTestbed(t, "macvtap", 1500)
	testenv.With(t, s.hostNS, func(h *netlink.Handle) error { return h.LinkDel(testenv.Link(t, s.hostNS, "sn0")) })
	select {
	case err := <-s.run.done:
		s.run.once.Do(func() {})
		if !errors.Is(err, host.ErrNetdeviceGone) || !strings.Contains(err.Error(), "sn0") {
			t.Fatalf("%v", err)
		}
		testenv.Explained(t, err.Error())
	case <-time.After(testenv.Patience):
		t.Fatal("the host goes on")
	}
}

// TestNetnsPortDeleted deletes the host's interface on the card during a session, and expects a new
// session with a new interface.
func TestNetnsPortDeleted(t *testing.T) {
	s := newTestbed(t, "macvtap", 1500)
	testenv.With(t, s.unitNS, func(h *netlink.Handle) error {
		for _, name := range testenv.Links(t, s.unitNS) {
			if name != "lo" && name != "eth1" {
				return h.LinkDel(testenv.Link(t, s.unitNS, name))
			}
		}
		return errors.New("the host has no interface on the card")
	})
	testenv.Eventually(t, func() bool { return s.host.Status().Sessions == 2 && s.carrier(t)() }, "no new session")
	testenv.Run(t, s.hostNS, "ping", "-c", "2", "-i", "0.01", "-W", "10", lanAddr)
}

// TestNetnsBridged puts the host's netdevice into a bridge, with a machine with another MAC address
// behind it, as a hypervisor does.
func TestNetnsBridged(t *testing.T) {
	s := newTestbed(t, "tap", 1500)
	machine := testenv.NetNS(t)
	testenv.Veth(t, s.hostNS, "vm0", machine, "eth0")
	testenv.Bridge(t, s.hostNS, "br0", "sn0", "vm0")
	testenv.Up(t, machine, "eth0")
	testenv.Address(t, machine, "eth0", "10.78.0.3/24")
	testenv.Eventually(t, func() bool { // frames of the machine do not have the host's address
		return slices.ContainsFunc(s.unit.Status().Hosts[0].DropReasons,
			func(why string) bool { return strings.Contains(why, "`macs` in the policy") })
	}, "the status saying which key of the policy lets machines be bridged")
	put(t, s.unit, "default: {macs: any}")
	testenv.Run(t, machine, "ping", "-c", "3", "-i", "0.01", "-W", "10", lanAddr)
	if err := transfer(machine, s.lanNS, lanAddr, 1, 16<<20); err != nil {
		t.Error(err)
	}
	if err := transfer(s.lanNS, machine, "10.78.0.3", 2, 16<<20); err != nil {
		t.Error(err)
	}
}

// TestNetnsMoved renames the host's netdevice and moves it to another network namespace, as
// `ip link set sn0 netns NAME` does. The netdevice has to follow the card as before, and to be used
// by the next session.
func TestNetnsMoved(t *testing.T) {
	s := newTestbed(t, "macvtap", 1500)
	elsewhere := testenv.NetNS(t)
	var fd int
	err := netns.Do(elsewhere, func() (err error) {
		fd, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	testenv.With(t, s.hostNS, func(h *netlink.Handle) error {
		l := testenv.Link(t, s.hostNS, "sn0")
		return errors.Join(h.LinkSetDown(l), h.LinkSetName(l, "lan7"), h.LinkSetNsFd(l, fd))
	})
	testenv.Up(t, elsewhere, "lan7")
	testenv.Address(t, elsewhere, "lan7", "10.78.0.2/24")
	mtu := func(mtu int) {
		t.Helper()
		testenv.With(t, s.unitNS, func(h *netlink.Handle) error {
			return h.LinkSetMTU(testenv.Link(t, s.unitNS, "eth1"), mtu)
		})
		testenv.Eventually(t, func() bool { return testenv.Link(t, elsewhere, "lan7").Attrs().MTU == mtu },
			"lan7 does not follow to MTU %d", mtu)
	}
	mtu(1400)
	testenv.Run(t, elsewhere, "ping", "-c", "2", "-i", "0.01", "-W", "10", lanAddr)
	s.world.fabric.Cut("alpha")
	// Something has to be sent for the queue pair to fail; it gets no answer.
	_ = testenv.Command(t, elsewhere, "ping", "-c", "1", "-W", "1", lanAddr).Run()
	s.world.fabric.Heal("alpha")
	testenv.Eventually(t, func() bool {
		st := s.host.Status()
		return st.Sessions > 1 && st.State == host.Connected
	}, "no new session")
	mtu(1300)
	testenv.Run(t, elsewhere, "ping", "-c", "2", "-i", "0.01", "-W", "10", lanAddr)
}
