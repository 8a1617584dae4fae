package lan

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/vnet"
)

// packetQueue is one packet socket.
type packetQueue struct {
	fd       int
	offloads atomic.Uint32 // a vnet.Offloads: what the host can receive
	closed   atomic.Bool
	reading  atomic.Bool
	writing  atomic.Bool
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

// Bare errors, made once: a conversion per call would allocate.
var (
	errAgain error = unix.EAGAIN
	errInval error = unix.EINVAL
)

func newPacketQueue(fd int) *packetQueue {
	q := &packetQueue{fd: fd}
	q.msg.Iov = &q.iov
	q.msg.SetIovlen(1)
	q.msg.Control = &q.control[0]
	return q
}

// FD implements Queue.
func (q *packetQueue) FD() int { return q.fd }

// ReadFrame implements Queue.
//
// borrowed: slot, for the call.
func (q *packetQueue) ReadFrame(slot []byte) ([]byte, error) {
	if len(slot) < vnet.Headroom+vnet.MinFrame {
		return nil, errInval
	}
	slot = slot[:min(len(slot), vnet.Headroom+vnet.MaxFrame)]
	q.reading.Store(true)
	if q.closed.Load() {
		q.reading.Store(false)
		return nil, net.ErrClosed
	}
	frame, err := q.read(slot)
	q.reading.Store(false)
	return frame, err
}

// read receives until it has a frame for the host or there is none.
func (q *packetQueue) read(slot []byte) ([]byte, error) {
	buf := slot[vnet.Headroom:]
	q.iov.Base = unsafe.SliceData(buf)
	q.iov.SetLen(len(buf))
	for {
		q.msg.SetControllen(controlLen)
		q.msg.Flags = 0
		n, _, errno := unix.RawSyscall(unix.SYS_RECVMSG, uintptr(q.fd), uintptr(unsafe.Pointer(&q.msg)), unix.MSG_TRUNC)
		switch errno {
		case 0:
		case unix.EINTR, unix.ENETDOWN:
			// The card going down is told once, by an error. Its state is
			// Watch's business; here there is nothing to read, or something
			// from before.
			continue
		case unix.EAGAIN:
			return nil, errAgain
		case unix.EINVAL:
			// The frame cannot be described by a virtio_net_hdr: tunnels, for
			// example, or fragments. It has been consumed.
			q.invalid.Add(1)
			continue
		default:
			return nil, errno
		}
		if int(n) > len(buf) {
			q.tooLong.Add(1)
			return nil, vnet.ErrTooLong
		}
		if int(n) < vnet.MinFrame || !q.receivable(buf[1]) {
			q.invalid.Add(1)
			continue
		}
		tpid, tci := q.tag()
		if tpid == 0 {
			return buf[:n], nil
		}
		frame := slot[:vnet.Headroom+int(n)]
		if len(frame) > vnet.MaxFrame {
			q.tooLong.Add(1)
			return nil, vnet.ErrTooLong
		}
		vnet.InsertVLAN(frame, tpid, tci)
		return frame, nil
	}
}

// receivable reports whether the host can receive super-frames of that type.
func (q *packetQueue) receivable(gsoType byte) bool {
	if gsoType == vnet.GSONone {
		return true
	}
	need := vnet.Offloads(0)
	switch gsoType &^ vnet.GSOECN {
	case vnet.GSOTCPv4:
		need = vnet.TSO4
	case vnet.GSOTCPv6:
		need = vnet.TSO6
	case vnet.GSOUDPL4:
		need = vnet.USO
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

// WriteFrame implements Queue.
//
// borrowed: frame, for the call.
func (q *packetQueue) WriteFrame(frame []byte) error {
	if len(frame) < vnet.MinFrame {
		return errInval
	}
	// The kernel allocates as much in one piece as the header claims.
	vnet.RewriteHdrLen(frame)
	q.writing.Store(true)
	if q.closed.Load() {
		q.writing.Store(false)
		return net.ErrClosed
	}
	var errno unix.Errno
	for {
		_, _, errno = unix.RawSyscall(unix.SYS_WRITE, uintptr(q.fd), uintptr(unsafe.Pointer(unsafe.SliceData(frame))), uintptr(len(frame)))
		if errno != unix.EINTR {
			break
		}
	}
	q.writing.Store(false)
	switch errno {
	case 0:
		return nil
	case unix.EAGAIN:
		return errAgain
	case unix.EINVAL:
		return errInval
	}
	return errno
}

// Close implements Queue.
func (q *packetQueue) Close() error {
	if q.closed.Swap(true) {
		return nil
	}
	// Neither call blocks, so this takes microseconds.
	for q.reading.Load() || q.writing.Load() {
		runtime.Gosched()
	}
	if err := unix.Close(q.fd); err != nil {
		return fmt.Errorf("closing queue: %w", os.NewSyscallError("close", err))
	}
	return nil
}
