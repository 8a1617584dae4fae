package iounit

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/iounit/policy"
)

// mayBePromiscuous reports whether a host with permissions h may be promiscuous. On a port
// of a bridge it always may, because it gets the same frames then.
func (s *services) mayBePromiscuous(h *policy.Host) bool { return h.Promiscuous || s.port.Floods() }

// setFilter sets the receive filter of the host to the permitted part of f. Each further
// address is judged alone. A host that needs more of them than it may have gets what a
// network card does: everything, if it may be promiscuous. Otherwise the addresses that it
// has stay, and the others are refused. The caller holds s.mu.
func (s *services) setFilter(f protocol.ReceiveFilter) error {
	if f.Promisc && !s.mayBePromiscuous(s.policy) {
		return fmt.Errorf("%w: promiscuous mode; `promiscuous: yes` in the policy allows it", errDenied)
	}
	asked, most, had := f, s.policy.MostMACs(), s.now.filter.Unicast
	wanted := s.inTurn(f.Unicast)
	got, refused := s.shared.addresses.claimEach(s.host, s.now.mac, wanted, most, s.mayUse, s.tryAgain)
	if len(got) < len(wanted) && s.mayBePromiscuous(s.policy) {
		beyond := func(r refusedMAC) bool { return errors.Is(r.why, errBeyond) }
		f.Promisc = f.Promisc || slices.ContainsFunc(refused, beyond)
		refused = slices.DeleteFunc(refused, beyond)
	}
	refusal := summary(refused, len(wanted), most)
	if len(got) == 0 && refusal != nil { // as with other requests: it is refused, and nothing changes
		return refusal
	}
	f.Unicast = got
	if err := s.receive(f); err != nil {
		return errors.Join(err, s.receive(s.now.filter), s.shared.addresses.claim(s.host, s.now.mac, had))
	}
	s.now.filter, s.asked = f, asked
	if refusal != nil {
		s.refused(protocol.CfgFilter, refusal)
	}
	s.publish()
	return nil
}

// inTurn returns addresses in the order in which they are granted: those that the host has
// come first. Each of them is in the result once.
func (s *services) inTurn(macs []protocol.MAC) []protocol.MAC {
	var has, others []protocol.MAC
	now, seen := protocol.NewMACSet(s.now.filter.Unicast), make(map[protocol.MAC]bool, len(macs))
	for _, m := range macs {
		switch {
		case seen[m]:
		case now.Has(m):
			has = append(has, m)
		default:
			others = append(others, m)
		}
		seen[m] = true
	}
	return append(has, others...)
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

// tryAgain makes repeat tell the host that a refused request may be granted now.
func (s *services) tryAgain() {
	select {
	case s.retry <- struct{}{}:
	default:
	}
}

// repeat tells the host each time that it may repeat a request about the receive filter of
// which something was refused, until ctx is done.
func (s *services) repeat(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.retry:
		}
		_, err := s.conn.Request(ctx, protocol.CfgRefusal, protocol.AppendSubject(nil, protocol.CfgFilter))
		if err != nil {
			return // a host that does not know it asks again by itself
		}
	}
}

// receive sets the receive filter of the LAN interface.
func (s *services) receive(f protocol.ReceiveFilter) error {
	var unicast, groups []net.HardwareAddr
	for _, m := range f.Unicast {
		unicast = append(unicast, m[:])
	}
	for _, g := range f.Multicast {
		if g != broadcast { // always received
			groups = append(groups, g[:])
		}
	}
	return errors.Join(s.port.SetUnicast(unicast), s.port.SetMulticast(groups), s.port.SetAllMulti(f.AllMulti),
		s.port.SetPromisc(f.Promisc))
}
