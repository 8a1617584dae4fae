package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/internal/testenv"
)

// TestRDMAServices uses the services of an Ethernet besides unicast: DHCP, router advertisement,
// VLANs, multicast and broadcast.
func TestRDMAServices(t *testing.T) {
	testenv.NeedTools(t, "dnsmasq", "udhcpc")
	inEachMode(t, "macvtap", func(t *testing.T, r *fixture) {
		t.Run("DHCP and router advertisement", func(t *testing.T) { testAutoconfiguration(t, r) })
		h := r.host(t)
		t.Run("VLAN", func(t *testing.T) { testVLAN(t, r, h) })
		t.Run("multicast", func(t *testing.T) {
			for _, group := range []string{"239.7.7.7", "ff05::7777"} {
				testMulticast(t, r.lan, "lan0", h.ns, "sn0", group)
				testMulticast(t, h.ns, "sn0", r.lan, "lan0", group)
			}
		})
		t.Run("broadcast", func(t *testing.T) {
			testBroadcast(t, r.lan, h.ns, addr(0))
			testBroadcast(t, h.ns, r.lan, h.addr())
		})
	})
}

// background starts a program in ns that ends with the test. It returns the output of the program.
func background(t testing.TB, ns, name string, args ...string) *bytes.Buffer {
	t.Helper()
	var out bytes.Buffer
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, "ip", append([]string{"netns", "exec", ns, name}, args...)...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // the error is always that of the kill
		if t.Failed() {
			t.Logf("%s:\n%s", name, &out)
		}
	})
	return &out
}

// testAutoconfiguration gets an IPv4 address by DHCP and an IPv6 address by router advertisement, and
// uses both.
func testAutoconfiguration(t *testing.T, r *fixture) {
	h := r.newHost(t)
	h.waitCarrier(true)
	background(t, r.lan, "dnsmasq", "--no-daemon", "--conf-file=/dev/null", "--port=0", "--user=root", "--log-dhcp",
		"--interface=lan0", "--bind-interfaces", "--no-ping", "--dhcp-authoritative", "--dhcp-leasefile="+
			filepath.Join(t.TempDir(), "leases"),
		"--dhcp-range=10.77.0.100,10.77.0.199,1h", "--dhcp-range=fd77::,ra-only", "--enable-ra", "--ra-param=lan0,4")
	script := filepath.Join(t.TempDir(), "udhcpc")
	text := "#!/bin/sh\n" + `if [ "$1" = bound ]; then ip addr add "$ip/$mask" dev "$interface" && ip route add default via "$router"; fi` + "\n"
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	testenv.Run(t, h.ns, "udhcpc", "-i", "sn0", "-f", "-q", "-n", "-t", "20", "-T", "2", "-s", script)
	lease := address(t, h.ns, func(a netlink.Addr) bool { return a.IP.To4() != nil })
	if lo, hi := netip.MustParseAddr("10.77.0.100"), netip.MustParseAddr("10.77.0.199"); lease.Less(lo) || hi.Less(lease) {
		t.Errorf("DHCP gave %v, which is not in the range", lease)
	}
	ping(t, r.lan, lease.String(), 2, 56)
	var global netip.Addr
	eventually(t, func() bool {
		global = address(t, h.ns, func(a netlink.Addr) bool {
			return a.IP.To4() == nil && a.IP.IsGlobalUnicast() && a.Flags&unix.IFA_F_TENTATIVE == 0
		})
		return global.IsValid()
	}, "an IPv6 address by router advertisement")
	ping(t, r.lan, global.String(), 2, 56)
}

// address returns an address of sn0 in ns that match accepts, if there is one.
func address(t testing.TB, ns string, match func(netlink.Addr) bool) netip.Addr {
	t.Helper()
	var found netip.Addr
	testenv.With(t, ns, func(nl *netlink.Handle) error {
		link, err := nl.LinkByName("sn0")
		if err != nil {
			return err
		}
		addrs, err := wholeDump(func() ([]netlink.Addr, error) { return nl.AddrList(link, netlink.FAMILY_ALL) })
		for _, a := range addrs {
			if match(a) {
				found, _ = netip.AddrFromSlice(a.IP)
				found = found.Unmap()
			}
		}
		return err
	})
	return found
}

// wholeDump calls list again as long as its result is inconsistent because of a concurrent change.
func wholeDump[T any](list func() ([]T, error)) ([]T, error) {
	for {
		all, err := list()
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			return all, err
		}
	}
}

// links returns the names of the netdevices in ns, without its loopback device.
func links(t testing.TB, ns string) []string {
	t.Helper()
	var names []string
	testenv.With(t, ns, func(nl *netlink.Handle) error {
		all, err := wholeDump(nl.LinkList)
		for _, l := range all {
			if name := l.Attrs().Name; name != "lo" {
				names = append(names, name)
			}
		}
		return err
	})
	return names
}

// testVLAN uses VLAN devices on both netdevices.
func testVLAN(t *testing.T, r *fixture, h *node) {
	for _, end := range []struct{ ns, dev, addr string }{{r.lan, "lan0", "10.78.0.1"}, {h.ns, "sn0", "10.78.0.2"}} {
		run(t, "ip", "-n", end.ns, "link", "add", "link", end.dev, "name", "v7", "type", "vlan", "id", "7")
		testenv.Up(t, end.ns, "v7")
		testenv.Address(t, end.ns, "v7", end.addr+"/24")
	}
	defer run(t, "ip", "-n", r.lan, "link", "del", "v7") // the test of the next mode makes the device again
	for _, size := range []int{56, 1472, 8972} {
		ping(t, h.ns, "10.78.0.1", 2, size)
	}
	testenv.Exchange(t, r.lan, "10.78.0.1", h.ns, 1<<20)
	noBadPackets(t, r.lan, h.ns)
	for _, end := range []string{r.lan, h.ns} {
		// An end that loses the tags would still answer, on the device below.
		if rx := testenv.Link(t, end, "v7").Attrs().Statistics.RxPackets; rx < 20 {
			t.Errorf("a VLAN device has received %d frames only", rx)
		}
	}
}

// testMulticast sends a datagram to a group that only a socket in namespace to has joined, and
// receives it there.
func testMulticast(t *testing.T, from, fromDev, to, toDev, group string) {
	t.Helper()
	ip := net.ParseIP(group)
	var rx *net.UDPConn
	err := netns.Do(to, func() error {
		ifi, err := net.InterfaceByName(toDev)
		if err == nil {
			rx, err = net.ListenMulticastUDP("udp", ifi, &net.UDPAddr{IP: ip, Port: 7777})
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer rx.Close()
	var tx *net.UDPConn
	err = netns.Do(from, func() (err error) {
		zone := ""
		if ip.To4() == nil {
			zone = fromDev
		} else if err = exec.Command("ip", "route", "replace", "239.0.0.0/8", "dev", fromDev).Run(); err != nil {
			return fmt.Errorf("route to the group: %w", err)
		}
		tx, err = net.DialUDP("udp", nil, &net.UDPAddr{IP: ip, Port: 7777, Zone: zone})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Close()
	datagramArrives(t, func(b []byte) error { _, err := tx.Write(b); return err }, rx)
}

// testBroadcast sends a broadcast datagram and receives it in namespace to.
func testBroadcast(t *testing.T, from, to, source string) {
	t.Helper()
	var rx, tx *net.UDPConn
	listen := func(at string) (c *net.UDPConn, err error) {
		return net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(at)))
	}
	errRx := netns.Do(to, func() (err error) { rx, err = listen("0.0.0.0:7778"); return err })
	errTx := netns.Do(from, func() (err error) { tx, err = listen(source + ":0"); return err })
	if err := errors.Join(errRx, errTx); err != nil {
		t.Fatal(err)
	}
	defer rx.Close()
	defer tx.Close()
	all := netip.MustParseAddrPort("10.77.0.255:7778")
	datagramArrives(t, func(b []byte) error { _, err := tx.WriteToUDPAddrPort(b, all); return err }, rx)
}

// datagramArrives sends a datagram until it arrives: joining a group takes
// effect some time after the call.
func datagramArrives(t *testing.T, send func([]byte) error, rx *net.UDPConn) {
	t.Helper()
	text, b := pattern(1000, 3), make([]byte, 2000)
	eventually(t, func() bool {
		if err := send(text); err != nil {
			t.Fatal(err)
		}
		if err := rx.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		n, err := rx.Read(b)
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
		return err == nil && bytes.Equal(b[:n], text)
	}, "a datagram on %v", rx.LocalAddr())
}
