package lan

import (
	"fmt"
	"net"
	"slices"
	"sync"

	"github.com/splitnic/splitnic/vnet"
)

// port has the state that all kinds of port have in common.
type port struct {
	label string // what errors call it

	lock     sync.Mutex
	closed   bool
	mac      net.HardwareAddr
	offloads vnet.Offloads
}

// do runs fn with p.lock held and wraps its error. If the port is closed, it does not run fn,
// and the error wraps net.ErrClosed.
func (p *port) do(what string, fn func() error) error {
	p.lock.Lock()
	defer p.lock.Unlock()
	err := net.ErrClosed
	if !p.closed {
		err = fn()
	}
	if err != nil {
		return fmt.Errorf("%s of %s: %w", what, p.label, err)
	}
	return nil
}

// shut marks the port closed and reports whether it was open. The caller holds p.lock.
func (p *port) shut() bool {
	was := !p.closed
	p.closed = true
	return was
}

func (p *port) MAC() net.HardwareAddr {
	p.lock.Lock()
	defer p.lock.Unlock()
	return slices.Clone(p.mac)
}

func (p *port) Offloads() vnet.Offloads {
	p.lock.Lock()
	defer p.lock.Unlock()
	return p.offloads
}

// learned is a port of something that learns the addresses of hosts from their frames, and decides by
// itself which frames a port gets: those for the stations behind it, and those that it floods, to groups
// and to unknown stations. With multicast snooping it learns the groups from the hosts' reports.
type learned struct{ port *port }

func (l learned) SetMAC(mac net.HardwareAddr) error {
	return l.port.do(fmt.Sprintf("setting MAC address %v", mac), func() error {
		if err := checkMAC(mac); err != nil {
			return err
		}
		l.port.mac = slices.Clone(mac)
		return nil
	})
}

// SetPromisc implements Interface and does nothing.
func (learned) SetPromisc(bool) error { return nil }

// SetAllMulti implements Interface and does nothing.
func (learned) SetAllMulti(bool) error { return nil }

// SetMulticast implements Interface and only checks the addresses.
func (learned) SetMulticast(groups []net.HardwareAddr) error { return checkGroups(groups) }

// SetUnicast implements Interface and only checks the addresses.
func (learned) SetUnicast(addrs []net.HardwareAddr) error { return checkAddrs(addrs) }

// checkMAC returns an error if mac cannot be the address of a station.
func checkMAC(mac net.HardwareAddr) error {
	if len(mac) != 6 || mac[0]&1 != 0 || slices.Max(mac) == 0 {
		return fmt.Errorf("MAC address %q is not that of one station: six bytes, not all zero, the first one even", mac)
	}
	return nil
}

// checkAddrs returns an error if one of addrs cannot be the address of a station, or if
// there are too many.
func checkAddrs(addrs []net.HardwareAddr) error {
	if len(addrs) > MaxUnicast {
		return fmt.Errorf("%w: %d further addresses, at most %d", ErrUnsupported, len(addrs), MaxUnicast)
	}
	for _, a := range addrs {
		if err := checkMAC(a); err != nil {
			return err
		}
	}
	return nil
}

// checkGroups returns an error if one of groups is not the address of a group.
func checkGroups(groups []net.HardwareAddr) error {
	for _, g := range groups {
		if len(g) != 6 || g[0]&1 == 0 {
			return fmt.Errorf("%q is not the address of a group: six bytes, the first one odd", g)
		}
	}
	return nil
}

// cloneAddrs returns a deep copy of addrs.
func cloneAddrs(addrs []net.HardwareAddr) []net.HardwareAddr {
	out := make([]net.HardwareAddr, len(addrs))
	for i, a := range addrs {
		out[i] = slices.Clone(a)
	}
	return out
}

// asQueues returns qs as a slice of the interface.
func asQueues[Q Queue](qs []Q) []Queue {
	out := make([]Queue, len(qs))
	for i, q := range qs {
		out[i] = q
	}
	return out
}
