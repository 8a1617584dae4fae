package iounit

import (
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/iounit/policy"
)

// addresses say which host has which MAC addresses.
type addresses struct {
	link func() (lan.LinkState, error) // of the network card
	most int                           // how many of those that were made are remembered

	taken atomic.Pointer[protocol.MACSet] // those of the card and of all hosts

	mu      sync.Mutex   // guards what follows, and host.share
	card    protocol.MAC // the network card's own, as far as known to the ports
	of      map[*host]claimed
	granted []grant // the latest ones last
}

// claimed are the addresses that a host has.
type claimed struct {
	mac     protocol.MAC
	further []protocol.MAC
}

func (c claimed) has(m protocol.MAC) bool { return c.mac == m || slices.Contains(c.further, m) }

// grantsOfHost is how many addresses are remembered for each host that there can
// be.
const grantsOfHost = 4

func newAddresses(link func() (lan.LinkState, error), hosts int) *addresses {
	d := &addresses{link: link, most: grantsOfHost * hosts, of: make(map[*host]claimed)}
	d.taken.Store(new(protocol.MACSet))
	return d
}

// claim makes mac the host's address, and further ones, unless the card has one of
// them, or another host that does not share its addresses with this one.
func (d *addresses) claim(h *host, mac protocol.MAC, further []protocol.MAC) error {
	card := d.ofCard() // once, and without the lock: the kernel is asked
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, m := range append([]protocol.MAC{mac}, further...) {
		if owner := d.ownerOf(m, h, card); owner != "" && m != d.of[h].mac {
			return fmt.Errorf("%w: MAC address %v is that of %s", errDenied, m, owner)
		}
	}
	d.of[h] = claimed{mac, slices.Clone(further)}
	d.publish(card)
	return nil
}

// ofCard reads the network card's own address, the zero address if it has none or
// is gone.
func (d *addresses) ofCard() protocol.MAC {
	l, err := d.link()
	if err != nil {
		return protocol.MAC{}
	}
	return l.MAC
}

// refresh reads the card's address again: a bridge may have another one with each port.
func (d *addresses) refresh() { d.cardHas(d.ofCard()) }

// cardHas says that m is the card's address.
func (d *addresses) cardHas(m protocol.MAC) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if m != d.card {
		d.publish(m)
	}
}

// leave frees the addresses of a host, and remembers the one that was made for it.
func (d *addresses) leave(h *host) {
	card := d.ofCard()
	d.mu.Lock()
	defer d.mu.Unlock()
	if h.own.Valid() && d.of[h].mac == h.own {
		d.remember(grant{key: h.newestKey(), mac: h.own})
	}
	delete(d.of, h)
	d.publish(card)
}

// ownerOf says who other than h has address m, "" if nobody; card is the
// network card's. The caller holds d.mu.
func (d *addresses) ownerOf(m protocol.MAC, h *host, card protocol.MAC) string {
	if m == card {
		return "the network card itself"
	}
	for other, c := range d.of {
		if other != h && c.has(m) && !h.shares(other) {
			return "host " + other.hello.Name
		}
	}
	return ""
}

// setShare says by which name, of the policy, a host shares its addresses.
func (d *addresses) setShare(h *host, share string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	h.share = share
}

// shares reports whether two hosts may have the same addresses. The caller holds
// addresses.mu.
func (h *host) shares(other *host) bool { return h.share != "" && h.share == other.share }

// shared reports whether another host has address m of h as well.
func (d *addresses) shared(h *host, m protocol.MAC) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for other, c := range d.of {
		if other != h && c.has(m) {
			return true
		}
	}
	return false
}

// disputed says which address a session has that one of those that stay has as
// well, although their hosts do not share addresses any more.
func (d *addresses) disputed(h *host, staying []*host) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.of[h]
	for _, other := range staying {
		for _, m := range append([]protocol.MAC{c.mac}, c.further...) {
			if m.Valid() && d.of[other].has(m) && !h.shares(other) {
				return fmt.Errorf("%w: MAC address %v is that of host %s, and not shared (`share`)", errPolicy, m, other.hello.Name)
			}
		}
	}
	return nil
}

// publish makes the addresses that are in use, the network card's among them,
// known to all ports. The caller holds d.mu.
func (d *addresses) publish(card protocol.MAC) {
	d.card = card
	var macs []protocol.MAC
	for _, m := range append(d.all(), card) {
		if m.Valid() {
			macs = append(macs, m)
		}
	}
	taken := protocol.NewMACSet(macs)
	d.taken.Store(&taken)
}

// all returns all hosts' addresses. The caller holds d.mu.
func (d *addresses) all() []protocol.MAC {
	var macs []protocol.MAC
	for _, c := range d.of {
		macs = append(append(macs, c.mac), c.further...)
	}
	return macs
}

// madeAddresses is how many addresses are made for a host until one is free.
const madeAddresses = 8

// choose claims the host's address: the one that it asks for, or one that the
// policy gives it. That is made of its key, if it may have its own. Where another
// host has that one, which it may have been given on purpose, any other is better
// than none.
func (d *addresses) choose(h *host) (protocol.MAC, error) {
	mac := h.hello.MAC
	if mac != (protocol.MAC{}) {
		h.own = d.madeFor(h, mac)
		if err := mayUse(h.policy, mac, h.own); err != nil {
			return mac, err
		}
		return mac, d.claim(h, mac, nil)
	}
	patterns := h.policy.MACs
	if h.policy.OwnMAC {
		patterns = append([]policy.Pattern{{}}, patterns...)
	}
	var err error
	made := macOf(h.ownKey)
	for range madeAddresses {
		for _, p := range patterns {
			own := p.Fit(made)
			if p == (policy.Pattern{}) {
				h.own = own
			}
			if err = mayUse(h.policy, own, h.own); err == nil {
				err = d.claim(h, own, nil)
			}
			if err == nil {
				return own, nil
			}
		}
		made = randomMAC()
	}
	return mac, fmt.Errorf("no MAC address of the policy's is free: %w", err)
}

// mayUse refuses an address that the policy does not give a host.
func mayUse(host *policy.Host, mac, own protocol.MAC) error {
	switch {
	case host.MayUse(mac, own):
		return nil
	case host.Reserved(mac):
		return fmt.Errorf("%w: the policy keeps MAC address %v for another host, whose `macs` name it", errDenied, mac)
	default:
		return fmt.Errorf("%w: MAC address %v is not among those that the policy gives this host; `macs` gives it others",
			errDenied, mac)
	}
}

// grant is an address that was made for a host.
type grant struct {
	key string // hostKey
	mac protocol.MAC
}

// remember remembers an address that was made for a host. The caller holds d.mu.
func (d *addresses) remember(g grant) {
	d.granted = append(slices.DeleteFunc(d.granted, func(o grant) bool { return o == g }), g)
	if len(d.granted) > d.most {
		d.granted = slices.Delete(d.granted, 0, len(d.granted)-d.most)
	}
}

// madeFor is the address that is made for a host which asks for mac: that one if
// it was before, for another key of the host's, and otherwise the one of its key.
func (d *addresses) madeFor(h *host, mac protocol.MAC) protocol.MAC {
	d.mu.Lock()
	defer d.mu.Unlock()
	if slices.Contains(d.granted, grant{key: h.key, mac: mac}) {
		return mac
	}
	return macOf(h.ownKey)
}

// macOf derives a host's address from its ownKey, so that it gets the same one,
// and with it the same DHCP lease, each time and from every I/O unit, by
// whatever name that knows it: locally administered, unicast.
func macOf(ownKey string) protocol.MAC {
	sum := sha256.Sum256([]byte("splitnic MAC address of " + ownKey))
	return localMAC(protocol.MAC(sum[:6]))
}

// randomMAC is one that nobody can know in advance.
func randomMAC() (mac protocol.MAC) {
	rand.Read(mac[:]) // never fails
	return localMAC(mac)
}

// localMAC makes an address locally administered, and unicast.
func localMAC(mac protocol.MAC) protocol.MAC {
	mac[0] = mac[0]&^1 | 2
	return mac
}
