package main

import (
	"context"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
)

// del carries out DEL. That there is no such card, or no such namespace, is no error: the
// runtime may ask several times.
func del(ctx context.Context, args *skel.CmdArgs) error {
	c, err := load(args)
	if err != nil {
		return err
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	// First the card, so that nobody else gets its addresses while it is there.
	a := attachmentOf(c, args)
	if err := c.agent().Del(ctx, a.card()); err != nil {
		return explain(a.String(), c, err, types.ErrTryAgainLater)
	}
	if c.IPAM.Type == "" {
		return nil
	}
	if err := invoke.DelegateDel(ctx, c.IPAM.Type, args.StdinData, nil); err != nil {
		return c.ipamError("DEL", err)
	}
	return nil
}
