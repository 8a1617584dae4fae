package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/verbs"
)

// The headers of a RoCE v2 packet behind that of IP, in bytes: UDP, base transport header, extended
// transport header of RDMA, immediate data, and the checksum behind the payload.
const (
	roceHeaders = 8 + 12 + 16 + 4 + 4
	ipv4Header  = 20
	ipv6Header  = 40
)

const (
	echoTries  = 2
	echoPeriod = time.Second // for an answer to a try
)

// checkPath checks that packets of the port's path MTU reach the peer, and that as large ones come
// back: a switch whose MTU is too small drops them without a message. Pings are as long as the
// packets of RoCE, must not be fragmented, and leave by the netdevice of the GID.
func checkPath(ctx context.Context, r *report, name string, gid verbs.GIDEntry, port verbs.PortAttr, peer netip.Addr) {
	if !peer.IsValid() || port.LinkLayer != verbs.LinkEthernet {
		return
	}
	passes := func(pathMTU int) error { return echo(ctx, peer, gid.Netdev, pathMTU+roceHeaders) }
	switch err := passes(0); {
	case errors.Is(err, os.ErrPermission):
		r.warn(name, "not tried whether packets of the path MTU get through", "run as root")
		return
	case err != nil:
		r.warn(name, fmt.Sprintf("not known whether packets of the path MTU get through to %s: %v", peer, err),
			"let it answer pings")
		return
	}
	err := passes(port.ActiveMTU)
	if err == nil {
		r.ok(name, "packets of the path MTU, %d bytes, get through to %s and back", port.ActiveMTU, peer)
		return
	}
	smaller := port.ActiveMTU / 2
	for smaller >= 256 && passes(smaller) != nil {
		smaller /= 2
	}
	others := fmt.Sprintf("those of %d do", smaller)
	if smaller < 256 {
		others = "nor do those of 256"
	}
	r.missing(name, fmt.Sprintf("packets of the path MTU, %d bytes, do not get through to %s and back (%v); %s",
		port.ActiveMTU, peer, err, others),
		"raise the MTU of the switches between, or lower that of the netdevices; sessions use the smaller path MTU until then")
}

// echo sends echo requests with so many bytes behind the IP header, and returns nil if one is
// answered. They are not fragmented.
func echo(ctx context.Context, peer netip.Addr, netdev string, length int) error {
	network, kind, answer, proto := "ip4:icmp", icmp.Type(ipv4.ICMPTypeEcho), icmp.Type(ipv4.ICMPTypeEchoReply), 1
	if !peer.Is4() {
		network, kind, answer, proto = "ip6:ipv6-icmp", ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply, 58
	}
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error { return unfragmented(c, peer, netdev) }}
	conn, err := lc.ListenPacket(ctx, network, "")
	if err != nil {
		return err
	}
	defer conn.Close()
	const header = 8
	m := icmp.Message{Type: kind, Body: &icmp.Echo{ID: os.Getpid() & 0xffff, Data: make([]byte, max(length-header, 0))}}
	for try := range echoTries {
		m.Body.(*icmp.Echo).Seq = try
		b, err := m.Marshal(nil)
		if err != nil {
			return err
		}
		if _, err = conn.WriteTo(b, &net.IPAddr{IP: peer.AsSlice(), Zone: peer.Zone()}); errors.Is(err, unix.EMSGSIZE) {
			return fmt.Errorf("the MTU of %s is too small: %w", netdev, err)
		} else if err != nil {
			return err
		}
		if answered(ctx, conn, &m, answer, proto) {
			return nil
		}
	}
	return errors.New("no answer")
}

// answered waits for the answer to m.
func answered(ctx context.Context, conn net.PacketConn, m *icmp.Message, kind icmp.Type, proto int) bool {
	deadline := time.Now().Add(echoPeriod)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	asked := m.Body.(*icmp.Echo)
	buf := make([]byte, 1<<16)
	for {
		if conn.SetReadDeadline(deadline) != nil {
			return false
		}
		n, _, err := conn.ReadFrom(buf)
		if err != nil {
			return false
		}
		got, err := icmp.ParseMessage(proto, buf[:n])
		if err != nil || got.Type != kind {
			continue
		}
		if e, ok := got.Body.(*icmp.Echo); ok && e.ID == asked.ID && len(e.Data) == len(asked.Data) {
			return true
		}
	}
}

// unfragmented makes a socket send by a netdevice only, without fragments, and whatever path MTU
// the kernel remembers (ip(7), ipv6(7)).
func unfragmented(c syscall.RawConn, peer netip.Addr, netdev string) error {
	var err error
	failed := c.Control(func(fd uintptr) {
		if peer.Is4() {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE)
		} else {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE)
		}
		if err == nil && netdev != "" {
			err = unix.SetsockoptString(int(fd), unix.SOL_SOCKET, unix.SO_BINDTODEVICE, netdev)
		}
	})
	return errors.Join(failed, err)
}
