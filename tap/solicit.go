package tap

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Solicit checks the device repeatedly. The pauses between two checks double from firstLook
// to lastLook and are one second together: then the kernel repeats its requests itself. From
// the pause askAgain on, neighbours that have not answered are solicited again, four times in
// all: a request may be lost, for example in a switch that does not forward yet.
const (
	firstLook = time.Millisecond
	askAgain  = 64 * time.Millisecond
	lastLook  = 512 * time.Millisecond
)

// Solicit immediately repeats the solicitations for the neighbours that the network stack is
// resolving on the device, or on the devices stacked on it in its network namespace: VLAN
// devices, a bridge. It is called when the carrier has come back. When the carrier is lost the
// stack forgets its neighbours. It solicits those that are still in use although nothing can
// be sent, and repeats a solicitation only after net.ipv4.neigh.sn0.retrans_time_ms, or its
// ipv6 counterpart: one second.
//
// Solicit waits for the stack to notice the carrier, and for the neighbours' answers, for one
// second at most, or until ctx is done. Neighbours that have an address, for example permanent
// ones, are left alone, and frames that wait for a neighbour go on waiting. It is not an error
// if there is nothing to do. Solicit needs CAP_NET_ADMIN in the device's network namespace.
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

// solicit solicits the neighbours on the device, and on the devices stacked on it, that have
// carrier and are not in asked, and adds these devices to asked. complete is true if all of
// the devices that are up have carrier and the stack is resolving no neighbour on them.
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
				// A request sent now would not arrive: the device's queueing discipline is
				// not active before the stack has noticed the carrier.
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

// above returns the device with this index and the devices stacked on it.
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

// solicit solicits the neighbours that the stack is resolving on the devices in on, except on
// those in asked. It returns how many neighbours the stack is resolving on the devices in on.
func (p *location) solicit(on, asked map[int]bool) (waiting int, err error) {
	neighbours, err := p.handle.NeighListExecute(netlink.Ndmsg{State: netlink.NUD_INCOMPLETE})
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return 0, fmt.Errorf("listing neighbours: %w", err)
	}
	for _, n := range neighbours {
		if !on[n.LinkIndex] || n.FlagsExt&netlink.NTF_EXT_MANAGED != 0 {
			continue // the kernel solicits managed neighbours all the time
		}
		waiting++
		if asked[n.LinkIndex] {
			continue
		}
		// To use a neighbour that is being resolved has no effect. To remove it would fail the
		// frames that wait for it, and so their connections. Set back to NUD_NONE, the state
		// of a new neighbour, it keeps the frames, and the first use sends a solicitation.
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
