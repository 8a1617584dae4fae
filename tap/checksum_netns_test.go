package tap_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/tap"
	"github.com/splitnic/splitnic/vnet"
)

// talking sends a packet of a protocol from a network namespace: a datagram, or the first segment of
// a connection.
func talking(ns, network, to string, options ...int) error {
	return netns.Do(ns, func() error {
		addr := netip.MustParseAddrPort(to)
		domain, kind := unix.AF_INET, unix.SOCK_DGRAM
		var sa unix.Sockaddr
		if addr.Addr().Is6() {
			domain, sa = unix.AF_INET6, &unix.SockaddrInet6{Port: int(addr.Port()), Addr: addr.Addr().As16()}
		} else {
			sa = &unix.SockaddrInet4{Port: int(addr.Port()), Addr: addr.Addr().As4()}
		}
		if network == "tcp" {
			kind = unix.SOCK_STREAM
		}
		fd, err := unix.Socket(domain, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		for _, o := range options {
			// An extension header with an option that only pads.
			if err := unix.SetsockoptString(fd, unix.IPPROTO_IPV6, o, string([]byte{0, 0, 1, 4, 0, 0, 0, 0})); err != nil {
				return fmt.Errorf("option %d: %w", o, err)
			}
		}
		if err := unix.Connect(fd, sa); err != nil && !errors.Is(err, unix.EINPROGRESS) {
			return err
		}
		if network == "udp" {
			_, err = unix.Write(fd, make([]byte, 100))
		}
		return err
	})
}

// TestNetnsKernelChecksums has the kernel send packets of many kinds, and expects those whose
// checksum it leaves to the device to be sent as they are.
func TestNetnsKernelChecksums(t *testing.T) {
	testenv.NeedTUN(t)
	ns := testenv.NetNS(t)
	dev, err := tap.Open(tap.Config{Name: "sn0", NetNS: ns, Queues: 1, Offloads: vnet.AllOffloads})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := errors.Join(dev.Up(), dev.SetCarrier(true)); err != nil {
		t.Fatal(err)
	}
	testenv.Address(t, ns, "sn0", "10.9.0.2/24")
	testenv.Address(t, ns, "sn0", "fd09::2/64")
	testenv.Run(t, ns, "ip", "link", "add", "vx0", "type", "vxlan", "id", "7", "local", "10.9.0.2", "remote", "10.9.0.1",
		"dstport", "4789", "dev", "sn0", "udpcsum")
	testenv.Up(t, ns, "vx0")
	testenv.Address(t, ns, "vx0", "10.8.0.2/24")
	far := net.HardwareAddr{2, 9, 0, 0, 0, 1}
	for to, device := range map[string]string{"10.9.0.1": "sn0", "fd09::1": "sn0", "10.8.0.1": "vx0"} {
		testenv.Neighbour(t, ns, device, netip.MustParseAddr(to), far)
	}
	wanted := []struct {
		name, network, to string
		port              uint16 // of the outer packet
		options           []int
	}{
		{"UDP", "udp", "10.9.0.1:9001", 9001, nil},
		{"TCP", "tcp", "10.9.0.1:9002", 9002, nil},
		{"UDP over IPv6", "udp", "[fd09::1]:9003", 9003, nil},
		{"TCP over IPv6", "tcp", "[fd09::1]:9004", 9004, nil},
		{
			"TCP behind hop-by-hop and destination options", "tcp", "[fd09::1]:9005", 9005,
			[]int{unix.IPV6_HOPOPTS, unix.IPV6_DSTOPTS},
		},
		{"VXLAN", "udp", "10.8.0.1:9006", 4789, nil},
	}
	left := make(map[uint16]string) // those of which nothing has been left to the device yet
	for _, w := range wanted {
		left[w.port] = w.name
	}
	slot := make([]byte, vnet.MaxFrame+1)
	testenv.Eventually(t, func() bool {
		for _, w := range wanted {
			if err := talking(ns, w.network, w.to, w.options...); err != nil {
				t.Fatalf("%s: %v", w.name, err)
			}
		}
		for {
			f, err := dev.Queues()[0].ReadFrame(slot)
			if errors.Is(err, unix.EAGAIN) {
				return len(left) == 0
			}
			if err != nil {
				t.Fatal(err)
			}
			before := bytes.Clone(f)
			got, err := vnet.Outgoing(f)
			if err != nil || !bytes.Equal(got, before) {
				t.Errorf("the kernel's frame % x is sent as % x: %v", before, got, err)
			}
			at, ok := vnet.LayersOf(f).Transport(f)
			if ok && len(f) >= at.At+4 && !vnet.IsPlain(f) {
				delete(left, binary.BigEndian.Uint16(f[at.At+2:]))
			}
		}
	}, "the kernel leaves no checksum of %v to the device", left)
}
