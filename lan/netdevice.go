package lan

import (
	"errors"
	"fmt"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/vnet"
)

// netdevice is a site that is a network card or bridge. Its ports share their netlink sockets and
// one watch of the card. A netdevice without ports keeps nothing open.
type netdevice struct {
	nic, ns string
	port    opener

	mu  sync.Mutex
	now *shared // may be nil, or closed because it has no users any more
}

// open implements site. A card that is administratively down is set up.
func (n *netdevice) open(cfg Config) (Interface, error) {
	s, link, err := n.up()
	if err != nil {
		return nil, err
	}
	cfg.NetNS = n.ns
	return n.port(&card{shared: s, port: port{label: "a port on " + s.nic, mac: cfg.MAC}}, link, cfg)
}

// opener makes a port on a netdevice. It takes ownership of the card, also if it fails.
type opener func(on *card, below netlink.Link, cfg Config) (Interface, error)

// onNetdevice returns the function at of a kind whose argument is a netdevice.
func onNetdevice(open opener) func(arg, netns string) (site, error) {
	return func(arg, netns string) (site, error) { return &netdevice{nic: arg, ns: netns, port: open}, nil }
}

// use looks up the card and returns the shared state of its ports. The caller is a user of
// this state until it calls release. A card that was removed and made again with the same
// name is a different card.
func (n *netdevice) use() (*shared, netlink.Link, error) {
	n.mu.Lock()
	s := n.now
	n.mu.Unlock()
	if s != nil && s.hold() {
		link, err := s.looks.LinkByName(n.nic)
		if err == nil && link.Attrs().Index == s.index {
			return s, link, nil
		}
		s.release()
	}
	s, link, err := findShared(n.nic, n.ns)
	if err != nil {
		return nil, nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	// Another goroutine may have set n.now in the meantime.
	if o := n.now; o != nil && o.index == s.index && o.hold() {
		s.release()
		return o, link, nil
	}
	n.now = s
	return s, link, nil
}

// Info implements site. If there is no such card, the error lists the existing ones.
func (n *netdevice) Info() (Info, error) {
	s, link, err := n.use()
	if err != nil {
		return Info{}, err
	}
	defer s.release()
	info := Info{
		Name: n.nic, Index: s.index, Type: link.Type(), LinkState: s.stateOf(link),
		Encap: link.Attrs().EncapType, SetUp: link.Attrs().RawFlags&unix.IFF_UP != 0,
	}
	if up := link.Attrs().MasterIndex; up != 0 {
		if master, err := s.looks.LinkByIndex(up); err == nil { // it may be gone by now
			info.Master, info.MasterType = master.Attrs().Name, master.Type()
		}
	}
	return info, nil
}

// up is like use, and sets the card administratively up.
func (n *netdevice) up() (*shared, netlink.Link, error) {
	s, link, err := n.use()
	if err != nil || link.Attrs().RawFlags&unix.IFF_UP != 0 {
		return s, link, err
	}
	if err := s.handle.LinkSetUp(link); err != nil {
		s.release()
		if errors.Is(err, unix.EPERM) {
			err = fmt.Errorf("%w (needs CAP_NET_ADMIN)", err)
		}
		return nil, nil, fmt.Errorf("setting network card %s up: %w", n.nic, err)
	}
	return s, link, nil
}

// LinkInfo looks up a network card in a network namespace. If there is no such card, the
// error lists the existing ones.
func LinkInfo(nic, ns string) (Info, error) {
	return (&netdevice{nic: nic, ns: ns}).Info()
}

// Prepare prepares a network card for ports. It sets the card up, and limits the super-frames
// that the card merges to the size that fits vnet.MaxFrame. restore sets the previous limits
// again; not calling it does no harm.
func Prepare(nic, ns string) (restore func() error, err error) {
	c, link, err := (&netdevice{nic: nic, ns: ns}).up()
	if err != nil {
		return nil, err
	}
	defer c.release()
	old := groOf(link)
	if err := old.reduce(vnet.GSOMaxSize).set(c.handle, link, old); err != nil {
		return nil, fmt.Errorf("limiting %s: %w", nic, err)
	}
	return func() error {
		h, err := netns.Handle(ns)
		if err != nil {
			return err
		}
		defer h.Close()
		err = old.set(h, link, old.reduce(vnet.GSOMaxSize))
		if err != nil && !errors.Is(err, unix.ENODEV) { // the card is gone
			return fmt.Errorf("restoring %s: %w", nic, err)
		}
		return nil
	}, nil
}

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
