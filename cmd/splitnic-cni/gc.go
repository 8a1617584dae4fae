package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/splitnic/splitnic/cmd/internal/cards"
)

// collect implements GC: it removes the network's cards whose attachments are not valid any more,
// and their addresses. It continues after an error.
func collect(ctx context.Context, args *skel.CmdArgs) error {
	c, err := load(args)
	if err != nil {
		return err
	}
	if !c.anyValid {
		return c.wrong(validKey, "is missing: GC would remove the cards of all containers")
	}
	valid := map[attachment]bool{}
	for _, v := range c.ValidAttachments {
		valid[attachment{c.Name, v.ContainerID, v.IfName}] = true
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	list, _, err := c.agent().List(ctx)
	if err != nil {
		return explain("network "+c.Name, c, err, types.ErrTryAgainLater)
	}
	var errs []error
	for i := range list.Cards {
		spec := &list.Cards[i].Spec
		a, ours := attachmentOwning(spec.Owner)
		if !ours || a.network != c.Name || valid[a] {
			continue
		}
		if err := c.discard(ctx, a, spec, args); err != nil {
			errs = append(errs, err)
		}
	}
	if c.IPAM.Type != "" {
		if err := invoke.DelegateGC(ctx, c.IPAM.Type, args.StdinData, nil); err != nil {
			errs = append(errs, c.ipamError("GC", err))
		}
	}
	return allOf(errs)
}

// allOf joins errors into one, with the code of the first, because a runtime gets only one.
func allOf(errs []error) error {
	var first *types.Error
	if len(errs) < 2 || !errors.As(errs[0], &first) {
		return errors.Join(errs...)
	}
	texts := make([]string, 0, len(errs))
	for _, err := range errs {
		texts = append(texts, err.Error())
	}
	return types.NewError(first.Code, strings.Join(texts, "; "), "")
}

// discard removes the card of an attachment, and releases its addresses by DEL of the IPAM
// plugin, which may not implement GC.
func (c *config) discard(ctx context.Context, a attachment, spec *cards.Spec, args *skel.CmdArgs) error {
	if err := c.agent().Del(ctx, spec.Name); err != nil {
		return explain(a.String(), c, err, types.ErrTryAgainLater)
	}
	if c.IPAM.Type == "" {
		return nil
	}
	path, err := invoke.FindInPath(c.IPAM.Type, filepath.SplitList(args.Path))
	if err == nil {
		err = invoke.ExecPluginWithoutResult(ctx, path, args.StdinData, &invoke.Args{
			Command: "DEL", ContainerID: a.container, NetNS: spec.NetNS, IfName: a.ifname, Path: args.Path,
		}, nil)
	}
	if err != nil {
		return c.ipamError("DEL", fmt.Errorf("%v: %w", a, err))
	}
	return nil
}
