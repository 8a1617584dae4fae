package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/netns"
)

// cleanupTime is the maximum time for a request that has failed to remove what it has made.
const cleanupTime = 10 * time.Second

// add implements ADD: it makes a card with carrier and addresses. After an error it removes what
// it has made.
func add(ctx context.Context, args *skel.CmdArgs) (err error) {
	c, err := load(args)
	if err == nil {
		err = c.allKnown()
	}
	if err != nil {
		return err
	}
	a := attachmentOf(c, args)
	spec, err := c.spec(a, args)
	if err != nil {
		return err
	}
	result, err := c.previous()
	if err != nil {
		return err
	}
	bounded, cancel := c.bounded(ctx)
	defer cancel()
	// The agent accepts the same request again and returns the existing card. A second ADD that
	// fails would then remove the card of a running container.
	switch i, err := c.agent().Get(bounded, spec.Name); {
	case err == nil && i.Spec.NetNS != spec.NetNS:
		// The card is of an earlier run of the container, whose DEL has failed.
		if err := c.agent().Del(bounded, spec.Name); err != nil {
			return explain(a.String(), c, err, types.ErrTryAgainLater)
		}
	case err == nil:
		return types.NewError(errAttached, fmt.Sprintf("%v: is attached already, by card %s", a, spec.Name),
			"the container runtime has to ask for DEL first")
	case !isUnknown(err):
		return explain(a.String(), c, err, types.ErrTryAgainLater)
	}
	made := undo{func(ctx context.Context) error { return c.agent().Del(ctx, spec.Name) }}
	defer func() { err = made.unless(ctx, err) }()
	if err := c.makeCard(bounded, spec); err != nil {
		return explain(a.String(), c, err, types.ErrTryAgainLater)
	}
	link, err := carrier(bounded, args.Netns, spec.Netdevice, func() bool {
		i, err := c.agent().Get(bounded, spec.Name)
		return err == nil && i.Status.Permanent
	})
	if err != nil {
		return c.noCarrier(ctx, a, err)
	}
	own := &current.Result{
		CNIVersion: current.ImplementedSpecVersion, Interfaces: []*current.Interface{describe(link, args)},
	}
	if c.VLAN != 0 {
		if link, err = c.vlanDevice(a, args, link); err != nil {
			return err
		}
		own.Interfaces = []*current.Interface{describe(link, args), own.Interfaces[0]}
		if err := c.granted(bounded, a); err != nil {
			return err
		}
	}
	if c.IPAM.Type != "" {
		made = append(made, func(ctx context.Context) error {
			return invoke.DelegateDel(ctx, c.IPAM.Type, args.StdinData, nil)
		})
		if err := c.address(bounded, args, link, own); err != nil {
			return err
		}
	}
	if !c.DNS.IsEmpty() {
		own.DNS = c.DNS
	}
	return types.PrintResult(merge(result, own), c.CNIVersion)
}

// describe returns a netdevice of the container in the form of a result.
func describe(link *netlink.LinkAttrs, args *skel.CmdArgs) *current.Interface {
	return &current.Interface{Name: link.Name, Mac: link.HardwareAddr.String(), Mtu: link.MTU, Sandbox: args.Netns}
}

// noCarrier returns the error for a card without carrier. It asks the agent for the reason.
func (c *config) noCarrier(ctx context.Context, a attachment, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
	defer cancel()
	remedy := `the I/O unit has to run and to trust the card's key; "timeout" is for a longer wait`
	if i, asked := c.agent().Get(ctx, a.card()); asked == nil {
		err = fmt.Errorf("%w; the card is %s", err, state(&i.Status))
		if i.Status.Permanent {
			remedy = ""
		}
	}
	return types.NewError(types.ErrTryAgainLater, fmt.Sprintf("%v: %v", a, err), remedy)
}

// merge adds the result of this plugin to the result of the plugins before it.
func merge(before, own *current.Result) *current.Result {
	first := len(before.Interfaces)
	for _, ip := range own.IPs {
		*ip.Interface += first
	}
	before.Interfaces = append(before.Interfaces, own.Interfaces...)
	before.IPs = append(before.IPs, own.IPs...)
	before.Routes = append(before.Routes, own.Routes...)
	if !own.DNS.IsEmpty() {
		before.DNS = own.DNS
	}
	return before
}

// undo has the functions that undo the steps of a request. The last step is undone first.
type undo []func(context.Context) error

// unless undoes all steps if err is not nil, also when ctx is done. It adds to err what could not
// be removed.
func (u undo) unless(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
	defer cancel()
	for _, step := range slices.Backward(u) {
		if left := step(ctx); left != nil {
			err = leftBehind(err, left)
		}
	}
	return err
}

// leftBehind adds to an error that something could not be removed. An error of CNI keeps its
// code.
func leftBehind(err, left error) error {
	var e *types.Error
	if !errors.As(err, &e) {
		e = types.NewError(types.ErrInternal, err.Error(), "")
	}
	details := fmt.Sprintf("what it made is left until DEL or GC: %v", left)
	if e.Details != "" {
		details = e.Details + "; " + details
	}
	return types.NewError(e.Code, e.Msg, details)
}

// askEvery is the interval of asking the agent whether there can still be carrier.
const askEvery = 250 * time.Millisecond

// carrier waits until a netdevice has carrier, and returns its attributes. At that time the I/O
// unit has determined its MAC address and MTU. carrier fails when vain reports that there will
// be no carrier.
func carrier(ctx context.Context, ns, ifname string, vain func() bool) (*netlink.LinkAttrs, error) {
	began := time.Now()
	changes, done := make(chan netlink.LinkUpdate), make(chan struct{})
	defer func() {
		close(done)
		go func() { // the sender may be sending
			for range changes {
			}
		}()
	}()
	failed := make(chan error, 1)
	err := netns.Do(ns, func() error {
		return netlink.LinkSubscribeWithOptions(changes, done, netlink.LinkSubscribeOptions{
			ListExisting: true,
			ErrorCallback: func(err error) {
				select {
				case failed <- err:
				default:
				}
			},
		})
	})
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", ifname, err)
	}
	ask := time.NewTicker(askEvery)
	defer ask.Stop()
	for {
		select {
		case <-ask.C:
			if vain() {
				return nil, errors.New("there will be no carrier")
			}
		case u, more := <-changes:
			if !more {
				return nil, fmt.Errorf("watch %s: %w", ifname, <-failed)
			}
			attrs := u.Attrs()
			if attrs.Name == ifname && attrs.RawFlags&unix.IFF_LOWER_UP != 0 && u.Header.Type == unix.RTM_NEWLINK {
				return attrs, nil
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("no carrier within %v", time.Since(began).Round(100*time.Millisecond))
		}
	}
}
