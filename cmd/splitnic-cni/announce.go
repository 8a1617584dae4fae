package main

import (
	"encoding/binary"
	"fmt"
	"net"

	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// announce announces the IPv4 addresses of a netdevice in this network namespace to its
// neighbours, by the ARP announcements of RFC 5227, section 3. Their ARP tables may have the
// address with the MAC address of another card. The kernel announces IPv6 addresses itself
// (ndisc_notify).
func announce(link *netlink.LinkAttrs, ips []*current.IPConfig) error {
	for _, ip := range ips {
		if ip.Address.IP.To4() == nil {
			continue
		}
		if err := announceOne(link, ip.Address.IP.To4()); err != nil {
			return fmt.Errorf("announce %v on %s: %w", ip.Address.IP, link.Name, err)
		}
	}
	return nil
}

func announceOne(link *netlink.LinkAttrs, ip net.IP) error {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	to := unix.SockaddrLinklayer{Protocol: bigEndian(unix.ETH_P_ARP), Ifindex: link.Index, Halen: 6}
	copy(to.Addr[:], []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	return unix.Sendto(fd, arpAnnouncement(link.HardwareAddr, ip), 0, &to)
}

// arpAnnouncement returns an ARP request for ip from the netdevice that has ip.
func arpAnnouncement(mac net.HardwareAddr, ip net.IP) []byte {
	m := []byte{0, 1, 8, 0, 6, 4, 0, 1} // Ethernet, IPv4, the lengths of their addresses, ARP request
	m = append(append(m, mac...), ip...)
	return append(append(m, 0, 0, 0, 0, 0, 0), ip...)
}

// bigEndian returns the number whose bytes in memory are the big-endian bytes of v.
func bigEndian(v uint16) uint16 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], v)
	return binary.NativeEndian.Uint16(b[:])
}
