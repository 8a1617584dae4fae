package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/vishvananda/netlink"

	"github.com/splitnic/splitnic/cmd/internal/cards"
	"github.com/splitnic/splitnic/internal/netns"
)

// del implements DEL. It is no error if the card or the namespace does not exist, because the
// runtime may repeat a request.
func del(ctx context.Context, args *skel.CmdArgs) error {
	c, err := load(args)
	if err != nil {
		return err
	}
	bounded, cancel := c.bounded(ctx)
	defer cancel()
	// The card goes first, so that no other card gets its addresses while it exists.
	a := attachmentOf(c, args)
	if err := c.agent().Del(bounded, a.card()); err != nil {
		failed := explain(a.String(), c, err, types.ErrTryAgainLater)
		var refused *cards.Refused
		if ctx.Err() != nil || errors.As(err, &refused) && refused.Code != cards.Stopping {
			return failed
		}
		// Not every runtime repeats the request. So the netdevice and the addresses go now. The
		// agent removes the card by itself when the container's namespace is gone.
		err := removeNetdevice(args.Netns, c.netdevice(a))
		if err == nil {
			err = c.release(ctx, args)
		}
		if err != nil {
			failed = leftBehind(failed, err)
		}
		return failed
	}
	return c.release(ctx, args)
}

// release makes the IPAM plugin release the addresses.
func (c *config) release(ctx context.Context, args *skel.CmdArgs) error {
	if c.IPAM.Type == "" {
		return nil
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	err := invoke.DelegateDel(ctx, c.IPAM.Type, args.StdinData, nil)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx) // the plugin was killed
	}
	if err != nil {
		return c.ipamError("DEL", err)
	}
	return nil
}

// removeNetdevice removes the netdevice of a card without the agent, so that the card does not
// use its addresses any more. It is no error if there is no such netdevice.
func removeNetdevice(ns, name string) error {
	if ns == "" {
		return nil
	}
	err := netns.Do(ns, func() error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		if _, tap := link.(*netlink.Tuntap); !tap {
			return fmt.Errorf("%s is a %s device, and no card", name, link.Type())
		}
		return netlink.LinkDel(link)
	})
	var none netlink.LinkNotFoundError
	if errors.As(err, &none) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
