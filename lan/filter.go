package lan

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// receiveFilter says which frames of a shared card a host gets.
type receiveFilter struct {
	mac      net.HardwareAddr
	promisc  bool
	allMulti bool
	groups   []net.HardwareAddr // wanted besides the broadcast address
	unicast  []net.HardwareAddr // wanted besides mac
	down     bool               // nothing at all
	// beside is for a socket beside a macvtap, which receives what is for mac
	// and for groups by itself.
	beside bool
}

// maxListed bounds the groups in a program. With more of them, frames to all
// groups pass: it is the least that arrives that is promised.
const maxListed = 32

// Offsets in a frame, and the bytes of it that a filter lets through.
const (
	dst, src = 0, 6
	all      = 0xffffffff
)

var (
	accept = bpf.RetConstant{Val: all}
	reject = bpf.RetConstant{}
	// rejectAll lets nothing through.
	rejectAll = []bpf.Instruction{reject}
)

// program returns the filter as a program. It never lets a frame from the
// host's own address through: another port's socket on the same card gets
// that frame, its sender must not.
func (f receiveFilter) program() []bpf.Instruction {
	if f.down {
		return rejectAll
	}
	p := match(nil, src, f.mac, reject)
	group := []bpf.Instruction{ // skips one instruction unless to a group
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

// match appends: if the address at that offset is addr, then verdict.
func match(p []bpf.Instruction, offset uint32, addr net.HardwareAddr, verdict bpf.RetConstant) []bpf.Instruction {
	return append(p,
		bpf.LoadAbsolute{Off: offset, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: binary.BigEndian.Uint32(addr), SkipFalse: 3},
		bpf.LoadAbsolute{Off: offset + 4, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(binary.BigEndian.Uint16(addr[4:])), SkipFalse: 1},
		verdict)
}

var broadcast = net.HardwareAddr{255, 255, 255, 255, 255, 255}

// attachFilter makes program the filter of socket fd, in one step.
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
