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
}

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
	hi := binary.BigEndian.Uint32(f.mac)
	lo := uint32(binary.BigEndian.Uint16(f.mac[4:]))
	p := []unix.SockFilter{
		{Code: ldw, K: src},
		{Code: jeq, Jf: 3, K: hi},
		{Code: ldh, K: src + 4},
		{Code: jeq, Jf: 1, K: lo},
		{Code: ret, K: 0},
	}
	accept := unix.SockFilter{Code: ret, K: all}
	if f.promisc {
		return append(p, accept)
	}
	if f.allMulti {
		p = append(p,
			unix.SockFilter{Code: ldb, K: dst},
			unix.SockFilter{Code: jset, Jf: 1, K: 1},
			accept)
	} else {
		p = append(p,
			unix.SockFilter{Code: ldw, K: dst},
			unix.SockFilter{Code: jeq, Jf: 3, K: 0xffffffff},
			unix.SockFilter{Code: ldh, K: dst + 4},
			unix.SockFilter{Code: jeq, Jf: 1, K: 0xffff},
			accept)
	}
	return append(p,
		unix.SockFilter{Code: ldw, K: dst},
		unix.SockFilter{Code: jeq, Jf: 3, K: hi},
		unix.SockFilter{Code: ldh, K: dst + 4},
		unix.SockFilter{Code: jeq, Jf: 1, K: lo},
		accept,
		unix.SockFilter{Code: ret, K: 0})
}

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
