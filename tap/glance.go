package tap

import (
	"bytes"
	"encoding/binary"
	"net"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// glances is shared by the glances at all devices: one glance at a time holds its lock.
var glances struct {
	sync.Mutex
	answer [16 << 10]byte // larger than the answer about a device and its addresses
	seq    uint32
}

// glance compares the attributes of a device whose changes the kernel does not announce with
// their previous values. Glances are repeated for ever and usually find no difference, so a
// glance makes few system calls, allocates nothing and wakes up no goroutine. An attribute
// that cannot be read counts as different.
type glance struct {
	old         *digest
	link, addrs uint32 // sequence numbers of the two requests
	linked      bool   // the request for the link is answered
	ended       bool   // the request for addresses is answered, or was not made
	found       int    // number of addresses received
}

// unchanged reports whether the attributes whose changes the kernel does not announce are
// those of old.
func (p *location) unchanged(old *digest) bool {
	glances.Lock()
	defer glances.Unlock()
	return p.sameGroups(old.multicast) && p.sameLink(old)
}

// sameGroups reports whether the content of multicastFile is still old. The caller holds the
// lock of glances.
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

// sameLink requests the link and, unless the device is the port of a bridge, its additional
// addresses, in one datagram. It reports whether the answers are as in old. The caller holds
// the lock of glances.
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
		// The kernel answers within the system calls: there is nothing to wait for.
		n, err := unix.Read(p.glances, glances.answer[:])
		if err != nil || !g.compare(glances.answer[:n]) {
			p.forgetAnswers()
			return false
		}
	}
	return port || g.found == len(old.unicast)
}

// forgetAnswers discards the answers that are left, so that the next glance does not read them.
func (p *location) forgetAnswers() {
	for {
		if _, err := unix.Read(p.glances, glances.answer[:]); err != nil && err != unix.ENOBUFS {
			return
		}
	}
}

// appendGet appends a request about the device with this index. The request for addresses
// (RTM_GETNEIGH) must have no attributes.
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

// compare processes one datagram from the kernel, and reports whether nothing in it is
// different.
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

// sameLink reports whether the body of an RTM_NEWLINK has the values of old.
func (g *glance) sameLink(b []byte) bool {
	if len(b) < unix.SizeofIfInfomsg {
		return false
	}
	var promisc, allmulti uint32
	ok := eachAttribute(b[unix.SizeofIfInfomsg:], func(kind uint16, value []byte) {
		switch {
		case len(value) < 4:
		case kind == unix.IFLA_PROMISCUITY:
			promisc = binary.NativeEndian.Uint32(value)
		case kind == unix.IFLA_ALLMULTI:
			allmulti = binary.NativeEndian.Uint32(value)
		}
	})
	return ok && promisc == g.old.promisc && allmulti == g.old.allmulti
}

// knownAddress processes the body of an RTM_NEWNEIGH and counts the device's addresses in
// g.found. It returns false if the message is malformed or has an address of the device that
// is not in old.
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
			known = known && slices.ContainsFunc(g.old.unicast, func(a net.HardwareAddr) bool {
				return bytes.Equal(a, value)
			})
		}
	})
	return ok && known
}
