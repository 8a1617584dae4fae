package lan

import (
	"fmt"

	"github.com/vishvananda/netlink"
)

// groSizes has the largest super-frames that a card merges (ip-link(8)), in bytes. A size is 0 if
// the kernel does not have it.
type groSizes struct {
	all  int // gro_max_size, of IPv6, and before Linux 6.3 of IPv4 too
	ipv4 int // gro_ipv4_max_size
}

// groOf returns the sizes that link has.
func groOf(link netlink.Link) groSizes {
	a := link.Attrs()
	return groSizes{int(a.GROMaxSize), int(a.GROIPv4MaxSize)}
}

// reduce returns s with no size above most.
func (s groSizes) reduce(most int) groSizes { return groSizes{min(s.all, most), min(s.ipv4, most)} }

// set gives a card that has the sizes now the sizes s.
func (s groSizes) set(h *netlink.Handle, link netlink.Link, now groSizes) error {
	if s == now {
		return nil
	}
	if s.all != now.all {
		if err := h.LinkSetGROMaxSize(link, s.all); err != nil {
			return fmt.Errorf("setting gro_max_size to %d: %w", s.all, err)
		}
	}
	// A gro_max_size of at most 64 KiB has also set this one.
	if s.ipv4 != 0 {
		if err := h.LinkSetGROIPv4MaxSize(link, s.ipv4); err != nil {
			return fmt.Errorf("setting gro_ipv4_max_size to %d: %w", s.ipv4, err)
		}
	}
	return nil
}
