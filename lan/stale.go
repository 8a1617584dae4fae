package lan

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/splitnic/splitnic/internal/netns"
)

// markPrefix begins an alternative name of every macvtap that this package makes;
// the name that it was made with follows. An alias (IFLA_IFALIAS) would be
// announced to the network by LLDP daemons.
const markPrefix = "splitnic-lan-"

// marked reports whether this package made a device.
func marked(l netlink.Link) bool {
	return slices.ContainsFunc(l.Attrs().AltNames, func(name string) bool { return strings.HasPrefix(name, markPrefix) })
}

// CleanStale removes the macvtap devices on network card nic, in network
// namespace ns, that a killed process left, and returns their names. It knows
// them by that name and their card, and touches nothing else. Call it before the first Open
// on that card, and never while another I/O unit uses it.
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
		return nil, nil // its macvtaps went with it
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
