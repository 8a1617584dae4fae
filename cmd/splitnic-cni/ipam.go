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

// address has the IPAM plugin give addresses and routes, and gives them to the netdevice.
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
		// Neighbours may know an address by the card of a container that is gone. The kernel
		// may have no IPv6, or be somebody else's, with /proc/sys read-only.
		_ = os.WriteFile("/proc/sys/net/ipv6/conf/"+args.IfName+"/ndisc_notify", []byte("1"), 0o644)
		if err := ipam.ConfigureIface(args.IfName, own); err != nil {
			return err
		}
		return announce(link, own.IPs)
	})
}

// ipamError is an error about the IPAM plugin, whose code is its own if it has one.
func (c *config) ipamError(command string, err error) error {
	code := types.ErrInternal
	var own *types.Error
	if errors.As(err, &own) {
		code = own.Code
	}
	return types.NewError(code, fmt.Sprintf("network %s: %s of IPAM plugin %s: %v", c.Name, command, c.IPAM.Type, err), "")
}
