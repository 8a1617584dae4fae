package lan

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/framefd"
	"github.com/splitnic/splitnic/vnet"
)

// packetQueue is one packet socket.
type packetQueue struct {
	fd       *framefd.FD
	offloads atomic.Uint32 // a vnet.Offloads: what the host can receive
	down     atomic.Bool   // nothing is sent
	tooLong  atomic.Uint64
	invalid  atomic.Uint64
	dropped  uint64 // guarded by card.mu

	// Arguments of recvmsg(2), used by ReadFrame alone.
	msg     unix.Msghdr
	iov     unix.Iovec
	control [controlLen]byte
}

var _ Queue = (*packetQueue)(nil)

// controlLen has room for one control message with struct tpacket_auxdata.
const controlLen = unix.SizeofCmsghdr + 24

// Offsets in struct tpacket_auxdata and bits of its status, of
// <linux/if_packet.h>.
const (
	auxStatus = 0
	auxTCI    = 16
	auxTPID   = 18
	auxLen    = 20

	statusVLANValid = 1 << 4
	statusTPIDValid = 1 << 6
)

// Bare errors, made once: a conversion for each call would allocate.
var (
	errInval   error = unix.EINVAL
	errNetDown error = unix.ENETDOWN
	errAgain   error = unix.EAGAIN
)

func newPacketQueue(fd int) *packetQueue {
	q := &packetQueue{fd: framefd.New(fd)}
	q.msg.Iov = &q.iov
	q.msg.SetIovlen(1)
	q.msg.Control = &q.control[0]
	return q
}

// FD implements Queue.
func (q *packetQueue) FD() int { return q.fd.Int() }

// ReadFrame implements Queue.
//
// borrowed: slot, for the call.
func (q *packetQueue) ReadFrame(slot []byte) ([]byte, error) {
	if len(slot) < vnet.Headroom+vnet.MinFrame {
		return nil, errInval
	}
	// The frame comes behind the headroom, so that a tag fits in front.
	slot = slot[:min(len(slot), vnet.Headroom+vnet.MaxFrame)]
	buf := slot[vnet.Headroom:]
	q.iov.Base = unsafe.SliceData(buf)
	q.iov.SetLen(len(buf))
	for {
		q.msg.SetControllen(controlLen)
		q.msg.Flags = 0
		n, err := q.fd.Receive(unix.SYS_RECVMSG, unsafe.Pointer(&q.msg), unix.MSG_TRUNC)
		switch err {
		case nil:
		case unix.ENETDOWN:
			// The card going down is told once, by an error. Its state is
			// Watch's business; here there is nothing to read, or something
			// from before.
			continue
		case unix.EINVAL:
			// The frame cannot be described by a virtio_net_hdr: tunnels, for
			// example, or fragments. It has been consumed.
			q.invalid.Add(1)
			continue
		default:
			return nil, err
		}
		if n > len(buf) {
			q.tooLong.Add(1)
			return nil, vnet.ErrTooLong
		}
		if n < vnet.MinFrame || !q.receivable(buf[0], buf[1]) {
			q.invalid.Add(1)
			continue
		}
		tpid, tci := q.tag()
		if tpid == 0 {
			return buf[:n], nil
		}
		frame := slot[:vnet.Headroom+n]
		if len(frame) > vnet.MaxFrame {
			q.tooLong.Add(1)
			return nil, vnet.ErrTooLong
		}
		vnet.InsertVLAN(frame, tpid, tci)
		return frame, nil
	}
}

// receivable reports whether the host can receive frames with these flags and
// super-frames of that type.
func (q *packetQueue) receivable(flags, gsoType byte) bool {
	need := vnet.Offloads(0)
	if flags&vnet.FlagNeedsCsum != 0 {
		need = vnet.CSUM
	}
	switch gsoType &^ vnet.GSOECN {
	case vnet.GSONone:
	case vnet.GSOTCPv4:
		need |= vnet.TSO4
	case vnet.GSOTCPv6:
		need |= vnet.TSO6
	case vnet.GSOUDPL4:
		need |= vnet.USO
	default:
		return false
	}
	if gsoType&vnet.GSOECN != 0 {
		need |= vnet.TSOECN
	}
	return vnet.Offloads(q.offloads.Load())&need == need
}

// tag returns the VLAN tag that the kernel took out of the frame just
// received; tpid is 0 if there was none.
func (q *packetQueue) tag() (tpid, tci uint16) {
	if int(q.msg.Controllen) < unix.SizeofCmsghdr+auxLen {
		return 0, 0
	}
	cmsg := (*unix.Cmsghdr)(unsafe.Pointer(&q.control[0]))
	if cmsg.Level != unix.SOL_PACKET || cmsg.Type != unix.PACKET_AUXDATA {
		return 0, 0
	}
	aux := q.control[unix.SizeofCmsghdr:]
	status := binary.NativeEndian.Uint32(aux[auxStatus:])
	if status&statusVLANValid == 0 {
		return 0, 0
	}
	tpid = unix.ETH_P_8021Q
	if status&statusTPIDValid != 0 {
		tpid = binary.NativeEndian.Uint16(aux[auxTPID:])
	}
	return tpid, binary.NativeEndian.Uint16(aux[auxTCI:])
}

// WriteFD implements Queue.
func (q *packetQueue) WriteFD() int { return q.fd.Int() }

// WriteFrame implements Queue.
//
// borrowed: frame, for the call.
func (q *packetQueue) WriteFrame(frame []byte) error { return q.WriteParts(frame, nil) }

// WriteParts implements Queue.
//
// borrowed: head and rest, for the call.
func (q *packetQueue) WriteParts(head, rest []byte) error {
	if len(head) < vnet.MinFrame {
		return errInval
	}
	if q.down.Load() {
		return errNetDown
	}
	// The kernel allocates as much in one piece as the header claims.
	vnet.RewriteHdrLen(head)
	if len(rest) == 0 {
		return q.fd.Write(head)
	}
	return q.fd.Writev(head, rest)
}

// stats asks the kernel and returns the counters. The caller holds card.mu, and
// the queue is open.
func (q *packetQueue) stats() Stats {
	// Reading resets the kernel's counters.
	if st, err := unix.GetsockoptTpacketStats(q.FD(), unix.SOL_PACKET, unix.PACKET_STATISTICS); err == nil {
		q.dropped += uint64(st.Drops)
	}
	return q.counted()
}

// counted returns the counters as they were when the kernel was asked last. The
// caller holds card.mu.
func (q *packetQueue) counted() Stats {
	return Stats{Dropped: q.dropped, TooLong: q.tooLong.Load(), Invalid: q.invalid.Load()}
}

// Close implements Queue.
func (q *packetQueue) Close() error { return q.fd.Close() }
