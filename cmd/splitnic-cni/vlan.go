package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/vishvananda/netlink"

	"github.com/splitnic/splitnic/cmd/internal/cards"
	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/protocol"
)

// With "vlan", the container's interface is a VLAN device on the card's netdevice, which has
// another name (attachment.trunk). The kernel removes the VLAN device with the netdevice.

// makeCard makes the agent make a card. If a VLAN device is to be on the card's netdevice, the
// netdevice itself gets no IPv6 addresses: they would be for frames without a tag, on another
// LAN.
func (c *config) makeCard(ctx context.Context, spec *cards.Spec) error {
	enable := func() error { return nil }
	if c.VLAN != 0 {
		var err error
		if enable, err = disableIPv6(spec.NetNS); err != nil {
			return err
		}
	}
	_, err := c.agent().Add(ctx, spec)
	return errors.Join(err, enable())
}

// disableIPv6 disables IPv6 on the netdevices that are made in a network namespace before enable
// is called.
func disableIPv6(ns string) (enable func() error, err error) {
	const setting = "/proc/sys/net/ipv6/conf/default/disable_ipv6"
	var before []byte
	err = netns.Do(ns, func() (err error) {
		if before, err = os.ReadFile(setting); err != nil {
			return err
		}
		return os.WriteFile(setting, []byte("1"), 0o644)
	})
	if errors.Is(err, fs.ErrNotExist) { // the kernel has no IPv6, or the agent will report what is missing
		return func() error { return nil }, nil
	}
	return func() error {
		return netns.Do(ns, func() error { return os.WriteFile(setting, before, 0o644) })
	}, err
}

// vlanDevice makes the container's interface on the netdevice of its card.
func (c *config) vlanDevice(a attachment, args *skel.CmdArgs, on *netlink.LinkAttrs) (*netlink.LinkAttrs, error) {
	var made *netlink.LinkAttrs
	err := netns.Do(args.Netns, func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.ParentIndex = args.IfName, on.Index
		if err := netlink.LinkAdd(&netlink.Vlan{LinkAttrs: attrs, VlanId: c.VLAN}); err != nil {
			return err
		}
		link, err := netlink.LinkByName(args.IfName)
		if err != nil {
			return err
		}
		made = link.Attrs()
		return netlink.LinkSetUp(link)
	})
	if err != nil {
		what := fmt.Sprintf("%v: make it, a device of VLAN %d on %s: %v", a, c.VLAN, on.Name, err)
		return nil, types.NewError(errCard, what, "")
	}
	return made, nil
}

// often is the pause before the agent is asked again about a card.
const often = 10 * time.Millisecond

// granted waits until the I/O unit sends the card frames of its VLAN.
func (c *config) granted(ctx context.Context, a attachment) error {
	last := "the agent has not"
	for {
		i, err := c.agent().Get(ctx, a.card())
		switch {
		case ctx.Err() != nil:
			return c.noVLAN(a, "it has not answered: "+last)
		case err != nil:
			return explain(a.String(), c, err, types.ErrTryAgainLater)
		case c.passes(&i.Status):
			return nil
		case i.Status.Refused != nil && i.Status.Refused.What == protocol.CfgVLAN.String():
			return c.noVLAN(a, i.Status.Refused.Reason)
		}
		last = state(&i.Status)
		select {
		case <-time.After(often):
		case <-ctx.Done():
		}
	}
}

// passes reports whether the I/O unit sends a card frames of the container's VLAN.
func (c *config) passes(s *cards.Status) bool {
	return c.VLAN == 0 || s.VLANs != nil && s.VLANs.Has(uint16(c.VLAN))
}

// noVLAN returns the error that the I/O unit does not send frames of the container's VLAN.
func (c *config) noVLAN(a attachment, why string) error {
	why = strings.TrimPrefix(why, "the I/O unit: ")
	what := fmt.Sprintf("%v: the I/O unit sends no frames of VLAN %d: %s", a, c.VLAN, why)
	return types.NewError(types.ErrTryAgainLater, what, "")
}

func (c *config) compareVLAN(link netlink.Link) error {
	v, ok := link.(*netlink.Vlan)
	switch {
	case c.VLAN == 0:
		return nil
	case !ok:
		return fmt.Errorf("a %s device instead of one of VLAN %d", link.Type(), c.VLAN)
	case v.VlanId != c.VLAN:
		return fmt.Errorf("VLAN %d instead of %d", v.VlanId, c.VLAN)
	}
	return nil
}
