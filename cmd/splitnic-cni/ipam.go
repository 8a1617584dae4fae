package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/plugins/pkg/ipam"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/netns"
)

// address gets addresses and routes from the IPAM plugin, and configures them on the netdevice.
func (c *config) address(ctx context.Context, args *skel.CmdArgs, link *netlink.LinkAttrs, own *current.Result) error {
	got, err := invoke.DelegateAdd(ctx, c.IPAM.Type, args.StdinData, nil)
	if err != nil {
		return c.ipamError("ADD", err)
	}
	given, err := current.NewResultFromResult(got)
	if err != nil {
		return c.ipamError("ADD", err)
	}
	if len(given.IPs) == 0 {
		return c.ipamError("ADD", errors.New("it gave no address"))
	}
	own.IPs, own.Routes, own.DNS = given.IPs, given.Routes, given.DNS
	for _, ip := range own.IPs {
		ip.Interface = current.Int(0)
	}
	return netns.Do(args.Netns, func() error {
		// The neighbours' tables may have an address with the MAC address of another container's
		// card, which is gone. The error is ignored: the kernel may have no IPv6, or /proc/sys
		// may be read-only.
		_ = os.WriteFile("/proc/sys/net/ipv6/conf/"+args.IfName+"/ndisc_notify", []byte("1"), 0o644)
		if err := ipam.ConfigureIface(args.IfName, own); err != nil {
			return err
		}
		return announce(link, own.IPs)
	})
}

// ipamError returns an error about the IPAM plugin. It keeps the code of an error of CNI.
func (c *config) ipamError(command string, err error) error {
	code := types.ErrInternal
	var own *types.Error
	if errors.As(err, &own) {
		code = own.Code
	}
	return types.NewError(code, fmt.Sprintf("network %s: %s of IPAM plugin %s: %v", c.Name, command, c.IPAM.Type, err), "")
}

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
