package lan

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"slices"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// receiveFilter describes which frames of a shared card a host receives.
type receiveFilter struct {
	mac      net.HardwareAddr
	promisc  bool
	allMulti bool
	groups   []net.HardwareAddr // in addition to the broadcast address
	unicast  []net.HardwareAddr // in addition to mac
	down     bool               // no frames pass
	// beside is set for a socket beside a macvtap. The macvtap itself receives frames to mac
	// and to groups.
	beside bool
}

// maxListed is the largest number of groups in a program. With more groups, frames to all
// groups pass: a host may receive more frames than it asked for.
const maxListed = 32

// Offsets in a frame, and the number of bytes of a frame that a filter passes.
const (
	dst, src = 0, 6
	all      = 0xffffffff
)

var (
	accept = bpf.RetConstant{Val: all}
	reject = bpf.RetConstant{}
	// rejectAll passes no frames.
	rejectAll = []bpf.Instruction{reject}
)

// program returns the filter as a BPF program. The program never passes a frame from the
// host's own address: sockets of other ports on the same card get such a frame, but its
// sender must not.
func (f receiveFilter) program() []bpf.Instruction {
	if f.down {
		return rejectAll
	}
	p := match(nil, src, f.mac, reject)
	group := []bpf.Instruction{ // skips one instruction unless the frame is to a group
		bpf.LoadAbsolute{Off: dst, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: 1, SkipFalse: 1},
	}
	if f.beside {
		p = append(append(p, group...), reject)
		p = match(p, dst, f.mac, reject)
	}
	groups := f.groups
	if f.promisc {
		return append(p, accept)
	}
	if !f.beside {
		if f.allMulti || len(groups) > maxListed {
			p, groups = append(append(p, group...), accept), nil
		}
		p = match(p, dst, broadcast, accept)
		p = match(p, dst, f.mac, accept)
		for _, a := range groups {
			p = match(p, dst, a, accept)
		}
	}
	return append(matchAny(p, f.unicast), reject)
}

// matchAny appends instructions to p that pass a frame to one of addrs. The kernel limits the
// memory of a socket's program, and runs it for each frame of the card: there are few
// instructions for each address, and few of them are executed.
func matchAny(p []bpf.Instruction, addrs []net.HardwareAddr) []bpf.Instruction {
	if len(addrs) == 0 {
		return p
	}
	sorted := slices.SortedFunc(slices.Values(addrs), func(a, b net.HardwareAddr) int {
		return cmp.Or(cmp.Compare(lowPart(a), lowPart(b)), bytes.Compare(a, b))
	})
	p = append(p,
		bpf.LoadAbsolute{Off: dst, Size: 2}, bpf.TAX{},
		bpf.LoadAbsolute{Off: dst + 2, Size: 4}, bpf.StoreScratch{Src: bpf.RegA})
	return append(p, search(sorted)...)
}

// lowPart returns the last four bytes of an address, which differ the most between addresses.
func lowPart(a net.HardwareAddr) uint32 { return binary.BigEndian.Uint32(a[2:]) }

// search returns instructions that pass a frame if its destination is one of addrs, which are
// in ascending order of lowPart, and otherwise reject it or go on behind the last one. X has
// the first two bytes of the destination, A and the first word of scratch memory the others.
func search(addrs []net.HardwareAddr) (p []bpf.Instruction) {
	const few = 4
	if mid := len(addrs) / 2; len(addrs) > few && lowPart(addrs[mid]) != lowPart(addrs[0]) {
		for lowPart(addrs[mid]) == lowPart(addrs[mid-1]) {
			mid--
		}
		lower := append(search(addrs[:mid]), reject)
		p = append(p,
			bpf.JumpIf{Cond: bpf.JumpLessThan, Val: lowPart(addrs[mid]), SkipTrue: 1},
			bpf.Jump{Skip: uint32(len(lower))}) // may be longer than a conditional jump
		return append(append(p, lower...), search(addrs[mid:])...)
	}
	for _, a := range addrs {
		p = append(p,
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: lowPart(a), SkipFalse: 4},
			bpf.TXA{},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(binary.BigEndian.Uint16(a)), SkipFalse: 1},
			accept,
			bpf.LoadScratch{Dst: bpf.RegA})
	}
	return p
}

// match appends instructions to p that return verdict if the address at offset is addr.
func match(p []bpf.Instruction, offset uint32, addr net.HardwareAddr, verdict bpf.RetConstant) []bpf.Instruction {
	return append(p,
		bpf.LoadAbsolute{Off: offset, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: binary.BigEndian.Uint32(addr), SkipFalse: 3},
		bpf.LoadAbsolute{Off: offset + 4, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(binary.BigEndian.Uint16(addr[4:])), SkipFalse: 1},
		verdict)
}

var broadcast = net.HardwareAddr{255, 255, 255, 255, 255, 255}

// attachFilter makes program the filter of socket fd, and replaces an earlier one atomically.
func attachFilter(fd int, program []bpf.Instruction) error {
	raw, err := bpf.Assemble(program)
	if err != nil {
		return fmt.Errorf("assembling the receive filter: %w", err)
	}
	filter := make([]unix.SockFilter, len(raw))
	for i, in := range raw {
		filter[i] = unix.SockFilter{Code: in.Op, Jt: in.Jt, Jf: in.Jf, K: in.K}
	}
	err = unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{
		Len: uint16(len(filter)), Filter: &filter[0],
	})
	if err != nil {
		return fmt.Errorf("attaching the receive filter: %w", os.NewSyscallError("setsockopt SO_ATTACH_FILTER", err))
	}
	return nil
}
