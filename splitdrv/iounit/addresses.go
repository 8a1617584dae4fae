package iounit

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/iounit/policy"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// addresses has the MAC addresses of all hosts.
type addresses struct {
	link func() (lan.LinkState, error) // reads the state of the network card

	taken atomic.Pointer[protocol.MACSet] // addresses of the card and of all hosts

	mu      sync.Mutex   // guards the fields below, and host.share
	card    protocol.MAC // address of the network card that is in taken
	of      map[*host]claimed
	waiting map[*host]waiter
}

type claimed struct {
	mac     protocol.MAC
	further protocol.MACSet
}

func (c claimed) has(m protocol.MAC) bool { return c.mac == m || c.further.Has(m) }

func (c claimed) all() []protocol.MAC { return append(slices.Collect(c.further.All()), c.mac) }

// waiter is a host that was refused addresses because others have them. wake is called when
// one of them becomes free; it does not block.
type waiter struct {
	macs []protocol.MAC
	wake func()
}

func newAddresses(link func() (lan.LinkState, error)) *addresses {
	d := &addresses{link: link, of: make(map[*host]claimed), waiting: make(map[*host]waiter)}
	d.taken.Store(new(protocol.MACSet))
	return d
}

// claim makes mac and further the addresses of a host. It returns an error if the card has
// one of them, or another host that does not share its addresses with this one.
func (d *addresses) claim(h *host, mac protocol.MAC, further []protocol.MAC) error {
	card := d.ofCard() // without the lock, because it asks the kernel
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, m := range append([]protocol.MAC{mac}, further...) {
		if owner := d.ownerOf(m, h, card); owner != "" && m != d.of[h].mac {
			return fmt.Errorf("%w: MAC address %v is that of %s", errDenied, m, owner)
		}
	}
	d.of[h] = claimed{mac, protocol.NewMACSet(further)}
	d.publish(card)
	return nil
}

// refusedMAC is an address that a host may not have, and the reason.
type refusedMAC struct {
	mac protocol.MAC
	why error
}

// errBeyond is the error of an address beyond the number that a host may have.
var errBeyond = fmt.Errorf("%w: too many addresses", errDenied)

// claimEach is claim for those of the addresses in further that the host can have, at most a
// number of them. It refuses each of the others alone: those for which allow returns an error,
// those that others have, for which wake is called when one of them becomes free, and the last
// ones if there are too many. If it refuses all, the host's addresses stay.
func (d *addresses) claimEach(
	h *host, mac protocol.MAC, further []protocol.MAC, most int, allow func(protocol.MAC) error, wake func(),
) (got []protocol.MAC, refused []refusedMAC) {
	card := d.ofCard()
	d.mu.Lock()
	defer d.mu.Unlock()
	w := waiter{wake: wake}
	for _, m := range further {
		err := allow(m)
		if owner := d.ownerOf(m, h, card); err == nil && owner != "" {
			err = fmt.Errorf("%w: MAC address %v is that of %s", errDenied, m, owner)
			if m != card {
				err = fmt.Errorf("%w; with the same `share` in the policy both may have it", err)
				w.macs = append(w.macs, m)
			}
		}
		if err == nil && len(got) == most {
			err = errBeyond
		}
		if err != nil {
			refused = append(refused, refusedMAC{m, err})
			continue
		}
		got = append(got, m)
	}
	// A host that was refused an address requests the others without it, and still wants it.
	has := protocol.NewMACSet(slices.Concat(got, w.macs))
	w.macs = append(w.macs, slices.DeleteFunc(d.waiting[h].macs, has.Has)...)
	w.macs = w.macs[:min(len(w.macs), protocol.MaxFilterAddresses)]
	if delete(d.waiting, h); len(w.macs) > 0 {
		d.waiting[h] = w
	}
	if len(got) > 0 || len(further) == 0 {
		d.of[h] = claimed{mac, protocol.NewMACSet(got)}
	}
	d.publish(card)
	return got, refused
}

// ofCard reads the network card's own address. It returns the zero address if the card has
// none or is gone.
func (d *addresses) ofCard() protocol.MAC {
	l, err := d.link()
	if err != nil {
		return protocol.MAC{}
	}
	return l.MAC
}

// refresh reads the card's address again, because that of a bridge can change with each new
// port.
func (d *addresses) refresh() { d.cardHas(d.ofCard()) }

// cardHas records that m is the card's address.
func (d *addresses) cardHas(m protocol.MAC) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if m != d.card {
		d.publish(m)
	}
}

func (d *addresses) leave(h *host) {
	card := d.ofCard()
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.of, h)
	delete(d.waiting, h)
	d.publish(card)
}

// ownerOf returns a description of the owner of address m other than h, or "". card is the
// address of the network card. The caller holds d.mu.
func (d *addresses) ownerOf(m protocol.MAC, h *host, card protocol.MAC) string {
	if m == card {
		return "the network card itself"
	}
	if !d.taken.Load().Has(m) { // far fewer steps than to ask all hosts
		return ""
	}
	for other, c := range d.of {
		if other != h && c.has(m) && !h.shares(other) {
			return other.told()
		}
	}
	return ""
}

// setShare sets the name, in the policy, of the group of hosts that share addresses with h.
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

// disputed returns an error if h has an address that a host in staying has as well, and the
// two do not share addresses any more.
func (d *addresses) disputed(h *host, staying []*host) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.of[h]
	for _, other := range staying {
		for _, m := range c.all() {
			if m.Valid() && d.of[other].has(m) && !h.shares(other) {
				return fmt.Errorf("%w: MAC address %v is that of %s, and not shared (`share`)", errPolicy, m, other.told())
			}
		}
	}
	return nil
}

// publish publishes the addresses in use, including that of the network card, to all ports.
// The caller holds d.mu.
func (d *addresses) publish(card protocol.MAC) {
	d.card = card
	var macs []protocol.MAC
	for _, m := range append(d.all(), card) {
		if m.Valid() {
			macs = append(macs, m)
		}
	}
	before, taken := d.taken.Load(), protocol.NewMACSet(macs)
	d.taken.Store(&taken)
	for _, w := range d.waiting {
		if slices.ContainsFunc(w.macs, func(m protocol.MAC) bool { return before.Has(m) && !taken.Has(m) }) {
			w.wake()
		}
	}
}

// all returns all hosts' addresses. The caller holds d.mu.
func (d *addresses) all() []protocol.MAC {
	var macs []protocol.MAC
	for _, c := range d.of {
		macs = append(macs, c.all()...)
	}
	return macs
}

// choose claims an address for a host: the one that it requests, or one that the policy
// permits. The latter is derived from the host's identity, if the policy permits that one. If
// another host has it, choose tries the next ones, and random ones of the policy's patterns.
func (d *addresses) choose(h *host) (protocol.MAC, error) {
	derived := ownAddresses(h.peer(), h.hello.Name)
	mac := h.hello.MAC
	if mac != (protocol.MAC{}) {
		if h.own = derived[0]; slices.Contains(derived[:], mac) {
			h.own = mac
		}
		if err := mayUse(h.policy, mac, h.own); err != nil {
			return mac, err
		}
		return mac, d.claim(h, mac, nil)
	}
	var err error
	try := func(mac, own protocol.MAC) bool {
		h.own = own
		if err = mayUse(h.policy, mac, own); err == nil {
			err = d.claim(h, mac, nil)
		}
		return err == nil
	}
	made := derived[0]
	for _, own := range derived {
		if h.policy.OwnMAC && try(own, own) {
			return own, nil
		}
		for _, p := range h.policy.MACs {
			if mac := p.Fit(made); try(mac, own) {
				return mac, nil
			}
		}
		made = randomMAC()
	}
	return mac, fmt.Errorf("no MAC address of the policy's is free: %w", err)
}

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

// madeAddresses is how many addresses are derived or generated for a host until one is free.
const madeAddresses = 8

// ownAddresses returns the addresses that are derived from a host's identity, the first choice
// first. They are the same each time and at every I/O unit, so that the host keeps its DHCP
// lease, and those of one identity are few: a host must not find an address of somebody else by
// trying. Therefore they depend on the name under which its key is trusted, or on the key if it
// has none; and on the name that the host has chosen, by which the netdevices of one key differ,
// only by one of slots. If it is that of another netdevice of the key, the next one follows.
//
// Without keys, names are not authenticated, and the address only depends on the name.
func ownAddresses(id session.Identity, name string) (macs [madeAddresses]protocol.MAC) {
	of := id.Name
	if of == "" {
		of = id.Fingerprint.String()
	}
	if id.Insecure {
		of = "/" + name
	}
	sum := sha256.Sum256([]byte(name))
	slot := binary.BigEndian.Uint16(sum[:])
	for i := range macs {
		macs[i] = derived(fmt.Sprintf("splitnic MAC address %d of %s", slot, of))
		slot++ // the first one follows the last one
	}
	return macs
}

// derived derives a locally administered unicast address from a text.
func derived(from string) protocol.MAC {
	sum := sha256.Sum256([]byte(from))
	return localMAC(protocol.MAC(sum[:6]))
}

func randomMAC() (mac protocol.MAC) {
	rand.Read(mac[:]) // never fails
	return localMAC(mac)
}

// localMAC makes an address locally administered, and unicast.
func localMAC(mac protocol.MAC) protocol.MAC {
	mac[0] = mac[0]&^1 | 2
	return mac
}

// shownRefusals is the largest number of addresses that the error about a filter names.
const shownRefusals = 3

// summary returns one error about the refused ones of n further addresses, of which the host
// may have most, or nil if none is refused.
func summary(refused []refusedMAC, n, most int) error {
	var beyond []string
	var texts []string
	others := 0
	for _, r := range refused {
		switch {
		case errors.Is(r.why, errBeyond):
			beyond = append(beyond, r.mac.String())
		case others < shownRefusals:
			texts = append(texts, strings.TrimPrefix(r.why.Error(), errDenied.Error()+": "))
			others++
		default:
			others++
		}
	}
	if others > shownRefusals {
		texts = append(texts, fmt.Sprintf("and %d further addresses more", others-shownRefusals))
	}
	if len(beyond) > 0 {
		texts = append(texts, fmt.Sprintf("%d of %d further addresses, because this host may have %d (`max-macs` in the policy): %s",
			len(beyond), n, most, shorten(beyond)))
	}
	if len(texts) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s", errDenied, strings.Join(texts, "; "))
}

// shorten lists the first ones of some words.
func shorten(words []string) string {
	text := strings.Join(words[:min(len(words), shownRefusals)], ", ")
	if n := len(words) - shownRefusals; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text
}
