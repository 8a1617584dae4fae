package lan

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// membership is what a packet socket makes its card receive: frames to an address, or all
// frames (packet(7), PACKET_ADD_MEMBERSHIP).
type membership struct {
	kind uint16 // PACKET_MR_...
	addr [6]byte
}

// packetMRUnicast is PACKET_MR_UNICAST of <linux/if_packet.h>.
const packetMRUnicast = 3

// memberships has the memberships of one socket. The kernel counts references to them for
// each card, and drops those of a socket when the socket is closed.
type memberships struct {
	fd, index int
	have      map[membership]bool
}

// set makes want the socket's memberships. It is no error if a membership cannot be dropped
// because the card is gone.
func (m *memberships) set(want map[membership]bool) error {
	for s := range want {
		if m.have[s] {
			continue
		}
		if err := m.apply(unix.PACKET_ADD_MEMBERSHIP, s); err != nil {
			return fmt.Errorf("making the card receive %v: %w", s, os.NewSyscallError("setsockopt PACKET_ADD_MEMBERSHIP", err))
		}
		if m.have == nil {
			m.have = make(map[membership]bool)
		}
		m.have[s] = true
	}
	for s := range maps.Clone(m.have) {
		if want[s] {
			continue
		}
		if err := m.apply(unix.PACKET_DROP_MEMBERSHIP, s); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			return fmt.Errorf("making the card not receive %v: %w", s,
				os.NewSyscallError("setsockopt PACKET_DROP_MEMBERSHIP", err))
		}
		delete(m.have, s)
	}
	return nil
}

func (m *memberships) apply(op int, s membership) error {
	mr := unix.PacketMreq{Ifindex: int32(m.index), Type: s.kind}
	if s.addr != [6]byte{} {
		mr.Alen = uint16(copy(mr.Address[:], s.addr[:]))
	}
	return unix.SetsockoptPacketMreq(m.fd, unix.SOL_PACKET, op, &mr)
}

// filtered is a port with packet sockets that pass what a filter says. port.lock guards all of it but
// the card.
type filtered struct {
	*card
	filter receiveFilter
	asked  memberships // memberships of one of the sockets
	owner  interface {
		applyFilter(f receiveFilter) error // applies f to the sockets, and makes it filter
	}
}

// change applies a copy of the filter, changed by edit.
func (p *filtered) change(what string, edit func(*receiveFilter)) error {
	return p.do(what, func() error {
		f := p.filter
		edit(&f)
		return p.owner.applyFilter(f)
	})
}

func (p *filtered) SetPromisc(on bool) error {
	return p.change(fmt.Sprintf("setting promiscuous mode to %t", on), func(f *receiveFilter) { f.promisc = on })
}

func (p *filtered) SetUnicast(addrs []net.HardwareAddr) error {
	if err := checkAddrs(addrs); err != nil {
		return err
	}
	return p.change("setting further addresses", func(f *receiveFilter) { f.unicast = cloneAddrs(addrs) })
}

// String returns what the card receives for the membership.
func (s membership) String() string {
	if s.kind == unix.PACKET_MR_PROMISC {
		return "everything"
	}
	return net.HardwareAddr(s.addr[:]).String()
}

// memberships returns what the card has to receive for the filter.
func (f receiveFilter) memberships() map[membership]bool {
	want := make(map[membership]bool)
	if f.down {
		return want
	}
	if f.beside {
		if f.promisc {
			want[membership{kind: unix.PACKET_MR_PROMISC}] = true
		}
		for _, a := range f.unicast {
			want[membership{packetMRUnicast, [6]byte(a)}] = true
		}
		return want
	}
	// PACKET_MR_UNICAST would be enough for the host's address. But a card with a VLAN filter
	// passes all VLANs only while it is promiscuous.
	want[membership{kind: unix.PACKET_MR_PROMISC}] = true
	for _, g := range f.groups {
		want[membership{unix.PACKET_MR_MULTICAST, [6]byte(g)}] = true
	}
	return want
}
