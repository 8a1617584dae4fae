package e2e

import (
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/netns"
)

// sharers is the number of hosts that share one I/O unit.
const sharers = 32

// sharedGroup is a multicast group that half of the hosts join, and sharedGroupMAC is the destination
// address of frames to the group.
const (
	sharedGroup    = "239.7.7.7"
	sharedGroupMAC = "01:00:5e:07:07:07"
)

// TestRDMASharing shares one I/O unit, and one network card, among many hosts. All have to reach the
// LAN and receive broadcasts and multicasts, and one that is stopped must not slow the others down.
func TestRDMASharing(t *testing.T) {
	// The hosts are mostly idle, and keep-alives at the default interval would keep an emulated
	// processor busy.
	quiet := []string{"--advanced.keep-alive", "2s", "--peer-timeout", "60s", "--queues", "1"}
	r := newFixture(t, "macvtap", append(slices.Clone(quiet), "--advanced.handshake-timeout", "60s")...)
	started := time.Now()
	var hosts []*node
	for range sharers {
		hosts = append(hosts, r.newHost(t, append(slices.Clone(quiet), "--advanced.handshake-timeout", "60s")...))
	}
	for _, h := range hosts {
		h.ready()
	}
	t.Logf("%d hosts connected after %v", len(hosts), time.Since(started).Round(time.Millisecond))
	// A host has carrier a moment before the I/O unit's status shows the host.
	eventually(t, func() bool { return len(r.unit.unitStatus().Hosts) == sharers }, "a status with %d hosts", sharers)

	t.Run("ping", func(t *testing.T) {
		var wg sync.WaitGroup
		for i, h := range hosts {
			wg.Go(func() {
				ping(t, h.ns, addr(0), 2, 1000)
				if i%4 == 0 {
					ping(t, h.ns, hosts[(i+5)%len(hosts)].addr(), 2, 1000)
				}
			})
		}
		wg.Wait()
	})
	t.Run("broadcast", func(t *testing.T) {
		var wg sync.WaitGroup
		for _, h := range hosts {
			hears(t, &wg, h, "255.255.255.255")
		}
		tell(t, r.lan, "255.255.255.255")
		wg.Wait()
	})
	t.Run("multicast", func(t *testing.T) {
		var wg sync.WaitGroup
		for _, h := range hosts[:sharers/2] {
			hears(t, &wg, h, sharedGroup)
		}
		// Hosts that are not in the group do not get its frames.
		eventually(t, func() bool { return inGroup(r) == sharers/2 }, "the I/O unit knowing %d hosts in the group",
			sharers/2)
		tell(t, r.lan, sharedGroup)
		wg.Wait()
	})
	t.Run("one stopped", func(t *testing.T) { oneStopped(t, r, hosts) })
	var wg sync.WaitGroup
	for _, h := range hosts { // concurrently, which is faster
		wg.Go(func() { h.stop() })
	}
	wg.Wait()
}

// hears makes a host listen for datagrams to a group or to the broadcast address. It adds a goroutine
// to wg, which fails the test unless the host receives one.
func hears(t *testing.T, wg *sync.WaitGroup, h *node, to string) {
	t.Helper()
	var c *net.UDPConn
	err := netns.Do(h.ns, func() (err error) {
		ip := net.ParseIP(to)
		if !ip.IsMulticast() {
			c, err = net.ListenUDP("udp4", &net.UDPAddr{Port: tellPort})
			return err
		}
		dev, err := net.InterfaceByName("sn0")
		if err == nil {
			c, err = net.ListenMulticastUDP("udp4", dev, &net.UDPAddr{IP: ip, Port: tellPort})
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	wg.Go(func() {
		defer c.Close()
		_ = c.SetReadDeadline(time.Now().Add(patience)) // if this fails, Read fails too
		b := make([]byte, 64)
		if n, err := c.Read(b); err != nil || string(b[:n]) != to {
			t.Errorf("%s did not hear what was sent to %s: %v", h.name, to, err)
		}
	})
}

// tellPort is the UDP port of broadcast and multicast datagrams.
const tellPort = 7777

// tell sends a datagram from ns to a group or to the broadcast address.
func tell(t *testing.T, ns, to string) {
	t.Helper()
	err := netns.Do(ns, func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		dst := &unix.SockaddrInet4{Port: tellPort}
		copy(dst.Addr[:], net.ParseIP(to).To4())
		return errors.Join(
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BROADCAST, 1),
			unix.BindToDevice(fd, "lan0"),
			unix.Sendto(fd, []byte(to), 0, dst))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// inGroup returns the number of hosts to which the I/O unit passes frames to sharedGroup.
func inGroup(r *fixture) int {
	var s struct {
		Hosts []struct {
			Filter struct {
				Promisc, AllMulti bool
				Multicast         []string
			}
		}
	}
	if !r.unit.statusInto(&s) {
		return 0
	}
	n := 0
	for _, h := range s.Hosts {
		if h.Filter.Promisc || h.Filter.AllMulti || slices.Contains(h.Filter.Multicast, sharedGroupMAC) {
			n++
		}
	}
	return n
}

// oneStopped stops the process of one host, by SIGSTOP, while datagrams are sent to it. The other
// hosts must not be slowed down.
func oneStopped(t *testing.T, r *fixture, hosts []*node) {
	stopped, others := hosts[0], hosts[1:]
	server := echoTCP(t, r.lan, addr(0))
	// round makes some traffic of the other hosts, and returns how long that takes.
	round := func() time.Duration {
		t.Helper()
		started := time.Now()
		var wg sync.WaitGroup
		for i, h := range others {
			wg.Go(func() {
				ping(t, h.ns, addr(0), 3, 1000)
				if i < 4 {
					manyConnections(t, h.ns, server, 1, 1<<20)
				}
			})
		}
		wg.Wait()
		return time.Since(started)
	}
	round() // for the neighbour tables
	before := round()

	udpIn, c := udpPair(t, stopped.ns, stopped.addr(), r.lan)
	if err := stopped.cmd.Process.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	resume := sync.OnceFunc(func() {
		if err := stopped.cmd.Process.Signal(unix.SIGCONT); err != nil {
			t.Error(err)
		}
	})
	defer resume()
	// Send more than the host's elements and its queue at the I/O unit hold. Datagrams in the queue
	// count against the send buffer of the socket, which is soon full.
	b := make([]byte, 1400)
	n := 0
	for n < 4000 {
		if err := c.SetWriteDeadline(time.Now().Add(within(time.Second))); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write(b); err != nil {
			break // the send buffer is full
		}
		n++
	}
	if n < 300 {
		t.Errorf("only %d datagrams could be sent to the host that is stopped", n)
	}
	during := round()
	resume()
	after := round()
	t.Logf("4 × 2 MiB and %d pings took the others %v before, %v while one was stopped, %v after that", 3*len(others),
		before.Round(time.Millisecond), during.Round(time.Millisecond), after.Round(time.Millisecond))
	if during > 3*max(before, after)+within(time.Second) {
		t.Errorf("a stopped host slows the others down: %v instead of %v and %v", during, before, after)
	}
	ping(t, stopped.ns, addr(0), 2, 56)
	if _, err := udpIn.Read(b); err != nil {
		t.Errorf("of %d datagrams sent meanwhile, the host got none: %v", n, err)
	}
	if got := r.unit.unitStatus().Sessions; got != sharers {
		t.Errorf("%d hosts have had %d sessions", sharers, got)
	}
}
