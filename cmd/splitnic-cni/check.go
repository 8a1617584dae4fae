package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/plugins/pkg/ip"
	"github.com/vishvananda/netlink"

	"github.com/splitnic/splitnic/cmd/internal/cards"
	"github.com/splitnic/splitnic/internal/netns"
)

// check implements CHECK: it checks that the card, and what ADD has configured on it, exist and
// work.
func check(ctx context.Context, args *skel.CmdArgs) error {
	c, err := load(args)
	if err != nil {
		return err
	}
	if c.PrevResult == nil {
		return c.wrong("prevResult", "is missing; CHECK needs it")
	}
	result, err := c.previous()
	if err != nil {
		return err
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	a := attachmentOf(c, args)
	i, err := c.agent().Get(ctx, a.card())
	switch {
	case isUnknown(err):
		return types.NewError(types.ErrUnknownContainer, fmt.Sprintf("%v: the agent has no card %s", a, a.card()),
			"the container has to be made again")
	case err != nil:
		return explain(a.String(), c, err, types.ErrTryAgainLater)
	case i.Status.State != cards.Connected || !i.Status.Carrier:
		return types.NewError(types.ErrTryAgainLater,
			fmt.Sprintf("%v: card %s has no carrier; it is %s", a, a.card(), state(&i.Status)), "")
	}
	if !c.passes(&i.Status) {
		return c.noVLAN(a, "its policy is another one now")
	}
	if err := netns.Do(args.Netns, func() error { return c.compare(result, args) }); err != nil {
		return types.NewError(errDiffers, fmt.Sprintf("%v: %v", a, err), "the container has to be made again")
	}
	if c.IPAM.Type != "" {
		if err := invoke.DelegateCheck(ctx, c.IPAM.Type, args.StdinData, nil); err != nil {
			return c.ipamError("CHECK", err)
		}
	}
	return nil
}

// compare compares the result of ADD with the configuration in this network namespace.
func (c *config) compare(result *current.Result, args *skel.CmdArgs) error {
	own := -1
	for n, i := range result.Interfaces {
		if i.Name == args.IfName && i.Sandbox == args.Netns {
			own = n
		}
	}
	if own < 0 {
		return errors.New("prevResult has no such interface in " + args.Netns)
	}
	link, err := netlink.LinkByName(args.IfName)
	if err != nil {
		return err
	}
	if got, want := link.Attrs().HardwareAddr.String(), result.Interfaces[own].Mac; got != want {
		return fmt.Errorf("MAC address %s instead of %s", got, want)
	}
	if err := c.compareVLAN(link); err != nil {
		return err
	}
	var ips []*current.IPConfig
	for _, i := range result.IPs {
		if i.Interface != nil && *i.Interface == own {
			ips = append(ips, i)
		}
	}
	if err := ip.ValidateExpectedInterfaceIPs(args.IfName, ips); err != nil {
		return err
	}
	return ip.ValidateExpectedRoute(result.Routes)
}
