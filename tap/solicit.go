package tap

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The pauses of Solicit between two looks at the device double from the first to
// the last, which makes a second in all: then the kernel asks of its own accord.
// From askAgain on neighbours that have not answered are asked again, four times
// in all: a question may be lost, for example on the way through a switch that
// does not forward yet.
const (
	firstLook = time.Millisecond
	askAgain  = 64 * time.Millisecond
	lastLook  = 512 * time.Millisecond
)

// Solicit asks the LAN again, at once, for the neighbours that the network stack
// waits for on the device, or on what is stacked on it in its network namespace:
// VLAN devices, a bridge. It is for when the carrier has come back. The stack
// forgets its neighbours when that goes, asks for those that are still talked to
// although nothing can be sent, and repeats a question only after
// net.ipv4.neigh.sn0.retrans_time_ms, or the same of ipv6, which is a second.
//
// It waits for the stack to notice the carrier, and for the neighbours' answers,
// for a second at most, or until ctx is done. Neighbours that have an address, permanent ones for example, are
// left alone, and frames that wait for one go on waiting. To do nothing is not an
// error. It takes CAP_NET_ADMIN in the device's network namespace.
func (d *Device) Solicit(ctx context.Context) error {
	asked := map[int]bool{}
	for pause := firstLook; pause <= lastLook; pause *= 2 {
		if pause >= askAgain {
			clear(asked)
		}
		if complete, err := d.tun.solicit(asked); complete || err != nil {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// solicit asks for the neighbours on those devices that have their carrier, and
// have not been asked about. It is complete when there are no others that are up,
// and nobody is waited for.
func (t *tun) solicit(asked map[int]bool) (complete bool, err error) {
	err = t.do("asking for the neighbours", func() error {
		name, err := t.locate()
		if err != nil {
			return err
		}
		own, err := t.location.link(name)
		if err != nil {
			return err
		}
		links, err := t.location.dump()
		if err != nil {
			return fmt.Errorf("listing devices: %w", err)
		}
		complete = true
		ready := map[int]bool{}
		for _, l := range above(links, own.index) {
			switch {
			case l.flags&unix.IFF_UP == 0:
			case l.flags&unix.IFF_RUNNING == 0:
				// Nothing that is sent now would arrive: the device's queueing
				// discipline is not active before the stack has noticed.
				complete = false
			default:
				ready[l.index] = true
			}
		}
		waiting, err := t.location.solicit(ready, asked)
		complete = complete && waiting == 0
		for index := range ready {
			asked[index] = true
		}
		return err
	})
	return complete, err
}

// above returns the device with that index and what is stacked on it.
func above(links []link, index int) (stack []link) {
	in := map[int]bool{index: true}
	for grown := true; grown; {
		grown = false
		for _, l := range links {
			if !in[l.index] && !l.lowerElsewhere && in[int(l.lower)] {
				in[l.index], grown = true, true
			}
			if master := int(l.master); in[l.index] && master != 0 && !in[master] {
				in[master], grown = true, true
			}
		}
	}
	for _, l := range links {
		if in[l.index] {
			stack = append(stack, l)
		}
	}
	return stack
}

// solicit asks for the neighbours that the stack waits for on any of those
// devices, but those where they have been asked for, and returns how many it waits
// for.
func (p *location) solicit(on, asked map[int]bool) (waiting int, err error) {
	neighbours, err := p.handle.NeighListExecute(netlink.Ndmsg{State: netlink.NUD_INCOMPLETE})
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return 0, fmt.Errorf("listing neighbours: %w", err)
	}
	for _, n := range neighbours {
		if !on[n.LinkIndex] || n.FlagsExt&netlink.NTF_EXT_MANAGED != 0 {
			continue // the kernel asks for managed ones all the time
		}
		waiting++
		if asked[n.LinkIndex] {
			continue
		}
		// To use a neighbour that is being asked for changes nothing. To remove it
		// would fail the frames, and so the connections, that wait for it. Set back
		// to the state of a new one it keeps them, and the first use asks.
		n.State = netlink.NUD_NONE
		err := p.handle.NeighSet(&n)
		if err == nil {
			n.Flags |= netlink.NTF_USE
			err = p.handle.NeighSet(&n)
		}
		if err != nil {
			return waiting, fmt.Errorf("asking for %v: %w", n.IP, err)
		}
	}
	return waiting, nil
}
