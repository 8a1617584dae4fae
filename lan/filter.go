package lan

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"

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
	for _, a := range f.unicast {
		p = match(p, dst, a, accept)
	}
	return append(p, reject)
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
