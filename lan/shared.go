package lan

import (
	"errors"
	"fmt"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/ethtool"
	"github.com/splitnic/splitnic/internal/netns"
)

// shared is what all ports of one Card use together, so that one port more
// costs what the first one does: netlink sockets, one watch of the card, and a
// socket to announce hosts by. It closes with its last user.
type shared struct {
	nic    string
	ns     string
	index  int
	handle *netlink.Handle // works in the card's namespace, from any goroutine
	looks  *netlink.Handle // the same, for what changes nothing: it waits for no change
	speeds *ethtool.Client // works there too

	mu    sync.Mutex
	users int
	out   *outSocket // nil before the first announcement

	follower follower
}

// findShared opens netlink in ns and finds nic. The caller is the first user.
func findShared(nic, ns string) (*shared, netlink.Link, error) {
	s := &shared{nic: nic, ns: ns, users: 1}
	err := netns.Do(ns, func() (err error) {
		if s.handle, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
			return err
		}
		if s.looks, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
			return err
		}
		s.speeds, err = ethtool.New()
		return err
	})
	if err != nil {
		for _, h := range []*netlink.Handle{s.handle, s.looks} {
			if h != nil {
				h.Close()
			}
		}
		return nil, nil, fmt.Errorf("opening netlink: %w", err)
	}
	link, err := s.looks.LinkByName(nic)
	if err != nil {
		defer s.release()
		if errors.As(err, &netlink.LinkNotFoundError{}) {
			return nil, nil, missing(s.looks, nic, ns)
		}
		return nil, nil, fmt.Errorf("looking up network card %s: %w", nic, err)
	}
	s.index = link.Attrs().Index
	return s, link, nil
}

// hold makes the caller a user, unless there is none any more.
func (s *shared) hold() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users == 0 {
		return false
	}
	s.users++
	return true
}

// release ends the use by one user.
func (s *shared) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users--; s.users > 0 {
		return
	}
	s.handle.Close()
	s.looks.Close()
	_ = s.speeds.Close() // nothing was written
	if s.out != nil {
		s.out.close()
	}
}

// read reads the state of the card.
func (s *shared) read() (LinkState, error) {
	link, err := s.looks.LinkByIndex(s.index)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return LinkState{}, ErrGone
	}
	if err != nil {
		return LinkState{}, err
	}
	return s.stateOf(link), nil
}

// remove deletes a netdevice. The kernel takes some ten milliseconds for it, most of
// them to wait until no processor can be at it any more, which many can wait for at
// once: each by a socket of its own.
func (s *shared) remove(link netlink.Link) error {
	h, err := netns.Handle(s.ns)
	if err != nil { // the namespace has no name any more
		return s.handle.LinkDel(link)
	}
	defer h.Close()
	return h.LinkDel(link)
}

// stateOf extracts the state from what netlink says about the card.
func (s *shared) stateOf(link netlink.Link) LinkState {
	a := link.Attrs()
	const up = unix.IFF_UP | unix.IFF_RUNNING
	speed, err := s.speeds.Speed(a.Name)
	if err != nil {
		speed = 0 // devices without one refuse
	}
	return LinkState{Up: a.RawFlags&up == up, MTU: a.MTU, Speed: speed}
}

// Card is a network card, a bridge, or a switch in user space, on which ports are opened that share what
// looks after it. It keeps nothing open itself: without ports there is nothing to
// close.
type Card struct {
	kind    Kind
	nic, ns string
	spec    string

	userSwitch *userSwitch // nil: it is one of the kernel's

	mu  sync.Mutex
	now *shared // nil, or without a user any more, before the next use
}

// NewCard is for the ports that spec says, on a card in network namespace ns. It
// need not be there before it is used.
func NewCard(spec, ns string) (*Card, error) {
	kind, nic, err := ParseSpec(spec)
	if err != nil {
		return nil, err
	}
	c := &Card{kind: kind, nic: nic, ns: ns, spec: spec}
	if kind == VhostUser {
		c.userSwitch, err = parseSwitch(nic)
	}
	return c, err
}

// use makes the caller a user of what the ports share, and looks up the card. One
// that was removed and made again is another card of the same name.
func (c *Card) use() (*shared, netlink.Link, error) {
	c.mu.Lock()
	s := c.now
	c.mu.Unlock()
	if s != nil && s.hold() {
		link, err := s.looks.LinkByName(c.nic)
		if err == nil && link.Attrs().Index == s.index {
			return s, link, nil
		}
		s.release()
	}
	s, link, err := findShared(c.nic, c.ns)
	if err != nil {
		return nil, nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// Somebody else may have been as fast.
	if o := c.now; o != nil && o.index == s.index && o.hold() {
		s.release()
		return o, link, nil
	}
	c.now = s
	return s, link, nil
}

// Info looks up the card. If it is missing, the error lists those that are there.
func (c *Card) Info() (Info, error) {
	if c.userSwitch != nil {
		return c.userSwitch.info()
	}
	s, link, err := c.use()
	if err != nil {
		return Info{}, err
	}
	defer s.release()
	info := Info{
		Name: c.nic, Index: s.index, Type: link.Type(), MAC: link.Attrs().HardwareAddr, LinkState: s.stateOf(link),
	}
	if up := link.Attrs().MasterIndex; up != 0 {
		if master, err := s.looks.LinkByIndex(up); err == nil { // it may be gone by now
			info.Master, info.MasterType = master.Attrs().Name, master.Type()
		}
	}
	return info, nil
}

// open is use for a card that is about to be used for more, and is set up for
// that.
func (c *Card) open() (*shared, netlink.Link, error) {
	s, link, err := c.use()
	if err != nil || link.Attrs().RawFlags&unix.IFF_UP != 0 {
		return s, link, err
	}
	if err := s.handle.LinkSetUp(link); err != nil {
		s.release()
		if errors.Is(err, unix.EPERM) {
			err = fmt.Errorf("%w (needs CAP_NET_ADMIN)", err)
		}
		return nil, nil, fmt.Errorf("setting network card %s up: %w", c.nic, err)
	}
	return s, link, nil
}
