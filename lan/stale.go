package lan

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/splitnic/splitnic/internal/netns"
)

// markPrefix is the beginning of an alternative name of every macvtap that this package
// makes. The first name of the macvtap follows. LLDP daemons would announce an alias
// (IFLA_IFALIAS) to the network.
const markPrefix = "splitnic-lan-"

// marked reports whether this package has made the device.
func marked(l netlink.Link) bool {
	return slices.ContainsFunc(l.Attrs().AltNames, func(name string) bool { return strings.HasPrefix(name, markPrefix) })
}

// CleanStale removes the macvtap devices on network card nic, in network namespace ns, that a
// killed process has left behind, and returns their names. It recognises them by their
// alternative name and their card, and touches no other device. Call it before the first Open
// on that card, and never while another I/O unit uses the card.
func CleanStale(nic, ns string) ([]string, error) {
	h, err := netns.Handle(ns)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	links, err := netns.Links(h)
	if err != nil {
		return nil, fmt.Errorf("listing network devices: %w", err)
	}
	card := slices.IndexFunc(links, func(l netlink.Link) bool { return l.Attrs().Name == nic })
	if card < 0 {
		return nil, nil // the card's macvtaps were removed with it
	}
	var removed []string
	var errs []error
	for _, l := range links {
		if _, ok := l.(*netlink.Macvtap); !ok || l.Attrs().ParentIndex != links[card].Attrs().Index || !marked(l) {
			continue
		}
		if err := h.LinkDel(l); err != nil {
			errs = append(errs, fmt.Errorf("removing stale %s: %w", l.Attrs().Name, err))
			continue
		}
		removed = append(removed, l.Attrs().Name)
	}
	return removed, errors.Join(errs...)
}
