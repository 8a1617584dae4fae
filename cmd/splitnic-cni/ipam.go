package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/plugins/pkg/ipam"
	"github.com/vishvananda/netlink"

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
