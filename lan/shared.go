package lan

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/ethtool"
	"github.com/splitnic/splitnic/internal/netns"
)

// shared has what all ports of one Card use together: netlink sockets, one watch of the card,
// and a socket for announcements. The cost of one more port therefore does not grow with the
// number of ports. shared is closed with its last user.
type shared struct {
	nic    string
	ns     string
	index  int
	handle *netlink.Handle // works in the card's namespace, from any goroutine
	looks  *netlink.Handle // the same, for reading: requests do not wait for changes by handle
	speeds *ethtool.Client // works in the card's namespace as well

	mu    sync.Mutex
	users int
	out   int // an outSocket; negative before the first announcement

	follower follower
}

// findShared opens netlink sockets in ns and looks up nic. The caller is the first user.
func findShared(nic, ns string) (*shared, netlink.Link, error) {
	s := &shared{nic: nic, ns: ns, users: 1, out: -1}
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

// hold makes the caller a user. It reports false if s is closed because it has no users any
// more.
func (s *shared) hold() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users == 0 {
		return false
	}
	s.users++
	return true
}

// release ends the use by one user. The last one closes s.
func (s *shared) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users--; s.users > 0 {
		return
	}
	s.handle.Close()
	s.looks.Close()
	_ = s.speeds.Close() // nothing was written
	if s.out >= 0 {
		unix.Close(s.out)
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

// remove deletes a netdevice. This takes the kernel about ten milliseconds, most of which it
// waits until no processor can use the netdevice any more. Several removals can wait for
// that at the same time if each one has its own netlink socket.
func (s *shared) remove(link netlink.Link) error {
	h, err := netns.Handle(s.ns)
	if err != nil { // for example, the namespace does not have this name any more
		return s.handle.LinkDel(link)
	}
	defer h.Close()
	return h.LinkDel(link)
}

// stateOf returns the state of the card from its link, and asks the kernel for its speed.
func (s *shared) stateOf(link netlink.Link) LinkState {
	a := link.Attrs()
	const up = unix.IFF_UP | unix.IFF_RUNNING
	speed, _ := s.speeds.Speed(a.Name) // devices without a speed return an error, and 0
	state := LinkState{Up: a.RawFlags&up == up, MTU: a.MTU, Speed: speed}
	if len(a.HardwareAddr) == len(state.MAC) {
		state.MAC = [6]byte(a.HardwareAddr)
	}
	return state
}

// missing returns the error for a card that does not exist.
func missing(h *netlink.Handle, nic, ns string) error {
	where := "here"
	if ns != "" {
		where = "in network namespace " + ns
	}
	links, err := netns.Links(h)
	if err != nil {
		return fmt.Errorf("there is no network card %q %s: %w", nic, where, unix.ENODEV)
	}
	var names []string
	for _, l := range links {
		if l.Attrs().Flags&net.FlagLoopback == 0 {
			names = append(names, l.Attrs().Name)
		}
	}
	slices.Sort(names)
	if len(names) == 0 {
		names = []string{"none"}
	}
	return fmt.Errorf("there is no network card %q %s, only: %s: %w", nic, where, strings.Join(names, ", "), unix.ENODEV)
}

// watcher is the state of one call of Watch.
type watcher struct {
	own     int           // index of the port's own netdevice, or 0
	recheck atomic.Bool   // own has to be looked up, as it may have been removed
	changed chan struct{} // has capacity 1
}

func (w *watcher) tell() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// follower follows the state of a card for all watchers. It has one socket that receives
// link messages, and reads the state of the card once after each change, however many ports
// there are. The socket and its goroutine end with the last watcher.
type follower struct {
	mu       sync.Mutex
	socket   *nl.NetlinkSocket // nil if there are no watchers
	ended    chan struct{}     // closed when the goroutine that reads socket has ended
	state    LinkState
	err      error // of the latest read of the state, or why the goroutine has ended
	watchers map[*watcher]struct{}
	looked   func() // called after each read of the state; for tests
}
