package lan

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"

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

// Classic BPF, as in linux/filter.h. Offsets are those of the Ethernet header.
const (
	ldb  = unix.BPF_LD | unix.BPF_B | unix.BPF_ABS
	ldh  = unix.BPF_LD | unix.BPF_H | unix.BPF_ABS
	ldw  = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
	jeq  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	jset = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
	ret  = unix.BPF_RET | unix.BPF_K

	dst, src = 0, 6
	all      = 0xffffffff // bytes to let through
)

// rejectAll lets nothing through.
var rejectAll = []unix.SockFilter{{Code: ret}}

// program returns the filter as a BPF program. It never lets a frame from the
// host's own address through: another port's socket on the same card gets
// that frame, its sender must not.
func (f receiveFilter) program() []unix.SockFilter {
	if f.down {
		return rejectAll
	}
	accept, reject := unix.SockFilter{Code: ret, K: all}, unix.SockFilter{Code: ret}
	p := match(nil, src, f.mac, reject)
	group := []unix.SockFilter{ // skips one instruction unless to a group
		{Code: ldb, K: dst},
		{Code: jset, Jf: 1, K: 1},
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
func match(p []unix.SockFilter, offset uint32, addr net.HardwareAddr, verdict unix.SockFilter) []unix.SockFilter {
	return append(p,
		unix.SockFilter{Code: ldw, K: offset},
		unix.SockFilter{Code: jeq, Jf: 3, K: binary.BigEndian.Uint32(addr)},
		unix.SockFilter{Code: ldh, K: offset + 4},
		unix.SockFilter{Code: jeq, Jf: 1, K: uint32(binary.BigEndian.Uint16(addr[4:]))},
		verdict)
}

var broadcast = net.HardwareAddr{255, 255, 255, 255, 255, 255}

// attachFilter makes program the filter of socket fd, in one step.
func attachFilter(fd int, program []unix.SockFilter) error {
	err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{
		Len: uint16(len(program)), Filter: &program[0],
	})
	if err != nil {
		return fmt.Errorf("attaching the receive filter: %w", os.NewSyscallError("setsockopt SO_ATTACH_FILTER", err))
	}
	return nil
}
