package iounit

import (
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/iounit/policy"
)

// claim makes mac the host's address, and further ones, unless the card has one of
// them, or another host that does not share its addresses with this one.
func (u *Unit) claim(a *attachment, mac protocol.MAC, further []protocol.MAC) error {
	card := u.cfg.CardMAC() // once, and without the lock: the kernel is asked
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, m := range append([]protocol.MAC{mac}, further...) {
		if owner := u.ownerOf(m, a, card); owner != "" && m != a.mac {
			return fmt.Errorf("%w: MAC address %v is that of %s", errDenied, m, owner)
		}
	}
	a.mac, a.further = mac, slices.Clone(further)
	u.publish(card)
	return nil
}

// ownerOf says who other than a has address m, "" if nobody; card is the
// network card's. The caller holds u.mu.
func (u *Unit) ownerOf(m protocol.MAC, a *attachment, card protocol.MAC) string {
	if m == card {
		return "the network card itself"
	}
	for _, other := range u.hosts {
		if other != a && other.has(m) && !a.shares(other) {
			return "host " + other.hello.Name
		}
	}
	return ""
}

// has reports whether m is one of the host's addresses. The caller holds Unit.mu.
func (a *attachment) has(m protocol.MAC) bool { return a.mac == m || slices.Contains(a.further, m) }

// shares reports whether two hosts may have the same addresses. The caller holds
// Unit.mu.
func (a *attachment) shares(other *attachment) bool { return a.share != "" && a.share == other.share }

// shared reports whether another host has address m of a as well.
func (u *Unit) shared(a *attachment, m protocol.MAC) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, other := range u.hosts {
		if other != a && other.has(m) {
			return true
		}
	}
	return false
}

// publish makes the addresses that are in use, the network card's among them,
// known to all ports. The caller holds u.mu.
func (u *Unit) publish(card protocol.MAC) {
	var macs []protocol.MAC
	for _, m := range append(u.addresses(), card) {
		if m.Valid() {
			macs = append(macs, m)
		}
	}
	taken := protocol.NewMACSet(macs)
	u.taken.Store(&taken)
}

// addresses returns all hosts' addresses. The caller holds u.mu.
func (u *Unit) addresses() []protocol.MAC {
	var macs []protocol.MAC
	for _, a := range u.hosts {
		macs = append(append(macs, a.mac), a.further...)
	}
	return macs
}

// madeAddresses is how many addresses are made for a host until one is free.
const madeAddresses = 8

// address claims the host's address: the one that it asks for, or one that the
// policy gives it. That is made of its key, if it may have its own. Where another
// host has that one, which it may have been given on purpose, any other is better
// than none.
func (a *attachment) address() (protocol.MAC, error) {
	mac := a.hello.MAC
	if mac != (protocol.MAC{}) {
		a.own = a.unit.madeFor(a, mac)
		if err := mayUse(a.policy, mac, a.own); err != nil {
			return mac, err
		}
		return mac, a.unit.claim(a, mac, nil)
	}
	patterns := a.policy.MACs
	if a.policy.OwnMAC {
		patterns = append([]policy.Pattern{{}}, patterns...)
	}
	var err error
	made := macOf(a.ownKey)
	for range madeAddresses {
		for _, p := range patterns {
			own := p.Fit(made)
			if p == (policy.Pattern{}) {
				a.own = own
			}
			if err = mayUse(a.policy, own, a.own); err == nil {
				err = a.unit.claim(a, own, nil)
			}
			if err == nil {
				return own, nil
			}
		}
		made = randomMAC()
	}
	return mac, fmt.Errorf("no MAC address of the policy's is free: %w", err)
}

// grant is an address that was made for a host.
type grant struct {
	key string // hostKey
	mac protocol.MAC
}

// grantsOfHost is how many addresses are remembered for each host that there can
// be.
const grantsOfHost = 4

// remember remembers an address that was made for a host. The caller holds u.mu.
func (u *Unit) remember(g grant) {
	u.granted = append(slices.DeleteFunc(u.granted, func(o grant) bool { return o == g }), g)
	if most := grantsOfHost * u.cfg.MaxHosts; len(u.granted) > most {
		u.granted = slices.Delete(u.granted, 0, len(u.granted)-most)
	}
}

// madeFor is the address that is made for a host which asks for mac: that one if
// it was before, for another key of the host's, and otherwise the one of its key.
func (u *Unit) madeFor(a *attachment, mac protocol.MAC) protocol.MAC {
	u.mu.Lock()
	defer u.mu.Unlock()
	if slices.Contains(u.granted, grant{key: a.key, mac: mac}) {
		return mac
	}
	return macOf(a.ownKey)
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
