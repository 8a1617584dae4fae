package lan

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"

	"github.com/splitnic/splitnic/internal/netns"
)

// aliasPrefix begins the alias (IFLA_IFALIAS) of every macvtap that this
// package makes; the card's name follows.
const aliasPrefix = "splitnic:"

// CleanStale removes the macvtap devices on network card nic, in network
// namespace ns, that a killed process left, and returns their names. It knows
// them by their alias and touches nothing else. Call it before the first Open
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
	var removed []string
	var errs []error
	for _, l := range links {
		if _, ok := l.(*netlink.Macvtap); !ok || l.Attrs().Alias != aliasPrefix+nic {
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
