package tap

import (
	"bytes"
	"encoding/binary"
	"net"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// glances is what the glances at all devices have in common: they come one after the other.
var glances struct {
	sync.Mutex
	answer [16 << 10]byte // more than a device and its addresses take
	seq    uint32
}

// glance is a comparison of what the kernel does not announce with what it was before. It
// takes few system calls, allocates nothing and wakes up nobody, because it is made for ever,
// and finds nothing. What it cannot read, it takes for different.
type glance struct {
	old         *digest
	link, addrs uint32 // numbers of the requests
	linked      bool   // the first is answered
	ended       bool   // the second is answered, or was not made
	found       int    // addresses
}

// unchanged reports whether what the kernel does not announce is as it was.
func (p *location) unchanged(old *digest) bool {
	glances.Lock()
	defer glances.Unlock()
	return p.sameGroups(old.lists.multicast) && p.sameLink(old)
}

// sameGroups compares multicastFile with what was read before. The caller holds the lock of
// glances.
func (p *location) sameGroups(old []byte) bool {
	for buf, at := glances.answer[:], 0; ; {
		n, err := unix.Pread(int(p.multicast.Fd()), buf, int64(at))
		switch {
		case err == unix.EINTR:
			continue
		case err != nil || n > len(old)-at || !bytes.Equal(buf[:n], old[at:at+n]):
			return false
		case n == 0:
			return at == len(old)
		}
		at += n
	}
}

// sameLink asks for the device and, unless it is the port of a bridge, for the addresses
// besides its own, in one message. The caller holds the lock of glances.
func (p *location) sameLink(old *digest) bool {
	glances.seq += 2
	port := old.master != 0
	g := glance{old: old, link: glances.seq, addrs: glances.seq + 1, ended: port}
	request := appendGet(glances.answer[:0], unix.RTM_GETLINK, 0, g.link, unix.AF_UNSPEC, old.index)
	if !port {
		request = appendGet(request, unix.RTM_GETNEIGH, unix.NLM_F_DUMP, g.addrs, unix.AF_BRIDGE, old.index)
	}
	if _, err := unix.Write(p.glances, request); err != nil {
		return false
	}
	for !g.linked || !g.ended {
		// The kernel answers within the calls.
		n, err := unix.Read(p.glances, glances.answer[:])
		if err != nil || !g.compare(glances.answer[:n]) {
			p.forgetAnswers()
			return false
		}
	}
	return port || g.found == len(old.lists.unicast)
}

// forgetAnswers has the next glance begin anew.
func (p *location) forgetAnswers() {
	for {
		if _, err := unix.Read(p.glances, glances.answer[:]); err != nil && err != unix.ENOBUFS {
			return
		}
	}
}

// appendGet appends a request about a device. That for addresses must have no attributes.
func appendGet(b []byte, what, flags uint16, seq uint32, family uint8, index int) []byte {
	begin := len(b)
	b = append(b, 0, 0, 0, 0)
	b = binary.NativeEndian.AppendUint16(b, what)
	b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST|flags)
	b = binary.NativeEndian.AppendUint32(b, seq)
	b = append(b, 0, 0, 0, 0)
	// struct ifinfomsg
	b = append(b, family, 0, 0, 0)
	b = binary.NativeEndian.AppendUint32(b, uint32(index))
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0)
	if what == unix.RTM_GETLINK {
		b = binary.NativeEndian.AppendUint16(b, unix.SizeofRtAttr+4)
		b = binary.NativeEndian.AppendUint16(b, unix.IFLA_EXT_MASK)
		b = binary.NativeEndian.AppendUint32(b, extSkipStats)
	}
	binary.NativeEndian.PutUint32(b[begin:], uint32(len(b)-begin))
	return b
}

// compare takes a datagram of the kernel's, and reports whether nothing in it is different.
func (g *glance) compare(b []byte) bool {
	for len(b) > 0 {
		if len(b) < unix.SizeofNlMsghdr {
			return false
		}
		size := binary.NativeEndian.Uint32(b)
		if size < unix.SizeofNlMsghdr || uint64(size) > uint64(len(b)) {
			return false
		}
		what, flags := binary.NativeEndian.Uint16(b[4:]), binary.NativeEndian.Uint16(b[6:])
		seq, body := binary.NativeEndian.Uint32(b[8:]), b[unix.SizeofNlMsghdr:size]
		switch {
		case flags&unix.NLM_F_DUMP_INTR != 0:
			return false
		case seq == g.link && what == unix.RTM_NEWLINK && g.sameLink(body):
			g.linked = true
		case seq == g.addrs && what == unix.RTM_NEWNEIGH && g.knownAddress(body):
		case seq == g.addrs && what == unix.NLMSG_DONE:
			g.ended = true
		default:
			return false
		}
		b = b[min(align(int(size)), len(b)):]
	}
	return true
}

// sameLink compares the body of an RTM_NEWLINK.
func (g *glance) sameLink(b []byte) bool {
	if len(b) < unix.SizeofIfInfomsg {
		return false
	}
	var promisc, allmulti uint32
	if binary.NativeEndian.Uint32(b[8:])&unix.IFF_ALLMULTI != 0 {
		allmulti = 1 // kernels before 6.0 do not count
	}
	ok := eachAttribute(b[unix.SizeofIfInfomsg:], func(kind uint16, value []byte) {
		switch {
		case len(value) < 4:
		case kind == unix.IFLA_PROMISCUITY:
			promisc = binary.NativeEndian.Uint32(value)
		case kind == unix.IFLA_ALLMULTI:
			allmulti = max(allmulti, binary.NativeEndian.Uint32(value))
		}
	})
	return ok && promisc == g.old.promisc && allmulti == g.old.allmulti
}

// knownAddress takes the body of an RTM_NEWNEIGH, and reports whether it is no address of the
// device or one that it had.
func (g *glance) knownAddress(b []byte) bool {
	if len(b) < ndmsgSize {
		return false
	}
	if !ownAddress(b, g.old.index) {
		return true
	}
	known := true
	ok := eachAttribute(b[ndmsgSize:], func(kind uint16, value []byte) {
		if kind == attrLLAddr && unicast(value) {
			g.found++
			known = known && slices.ContainsFunc(g.old.lists.unicast, func(a net.HardwareAddr) bool {
				return bytes.Equal(a, value)
			})
		}
	})
	return ok && known
}

// eachAttribute calls fn with each attribute of a list, and reports whether it is one.
func eachAttribute(b []byte, fn func(kind uint16, value []byte)) bool {
	for len(b) >= unix.SizeofRtAttr {
		size := int(binary.NativeEndian.Uint16(b))
		if size < unix.SizeofRtAttr || size > len(b) {
			return false
		}
		fn(binary.NativeEndian.Uint16(b[2:]), b[unix.SizeofRtAttr:size])
		b = b[min(align(size), len(b)):]
	}
	return true
}

func align(n int) int { return (n + unix.NLMSG_ALIGNTO - 1) &^ (unix.NLMSG_ALIGNTO - 1) }
