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
	offloads atomic.Uint32 // a vnet.Offloads: those that the host can receive
	down     atomic.Bool   // no frames are sent
	tooLong  atomic.Uint64
	invalid  atomic.Uint64
	dropped  uint64 // guarded by port.lock

	burst framefd.Burst // only the reader uses it and the following field
	in    *messages     // for recvmmsg(2); recvmsg(2) uses the first one
	out   *messages     // for sendmmsg(2); only the writer uses them
}

var _ Queue = (*packetQueue)(nil)

// Offsets in struct tpacket_auxdata, and bits of its status (<linux/if_packet.h>).
const (
	auxStatus = 0
	auxTCI    = 16
	auxTPID   = 18
	auxLen    = 20

	statusVLANValid = 1 << 4
	statusTPIDValid = 1 << 6
)

func newPacketQueue(fd int) *packetQueue {
	return &packetQueue{fd: framefd.New(fd), in: newMessages(true), out: newMessages(false)}
}

func (q *packetQueue) FD() int { return q.fd.Int() }

// ReadFrame is ReadFrames for one frame.
//
// borrowed: slot, for the call.
func (q *packetQueue) ReadFrame(slot []byte) ([]byte, error) {
	if len(slot) < vnet.Headroom+vnet.MinFrame {
		return nil, unix.EINVAL
	}
	h := &q.in.headers[0].Hdr
	for {
		q.in.prepare(0, slot)
		n, err := q.fd.Receive(unix.SYS_RECVMSG, unsafe.Pointer(h), unix.MSG_TRUNC)
		if err != nil {
			if q.passing(err) {
				continue
			}
			return nil, err
		}
		if frame, err := q.received(slot, n, q.in.control[0].data[:h.Controllen]); frame != nil || err != nil {
			return frame, err
		}
	}
}

// passing reports whether an error of receiving is over after it was returned, so that the
// next call may return a frame. It counts the frames that are lost by such errors.
func (q *packetQueue) passing(err error) bool {
	switch err {
	case unix.ENETDOWN:
		// The socket reports once that the card went down. Watch is responsible for the state
		// of the card. Here there are no frames to read, or some from before.
		return true
	case unix.EINVAL:
		// A virtio_net_hdr cannot describe the frame: a tunnel, for example, or a fragment.
		// The frame has been consumed.
		q.invalid.Add(1)
		return true
	}
	return false
}

// received returns the result of ReadFrame for n bytes that were received into place(slot),
// with these control messages. It returns neither a frame nor an error if the frame is
// invalid or the host cannot receive it; such a frame is counted.
func (q *packetQueue) received(slot []byte, n int, control []byte) ([]byte, error) {
	buf := place(slot)
	if n > len(buf) {
		q.tooLong.Add(1)
		return nil, vnet.ErrTooLong
	}
	if n < vnet.MinFrame || !q.receivable(buf) {
		q.invalid.Add(1)
		return nil, nil
	}
	tpid, tci := tag(control)
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

// receivable reports whether the host can receive a frame with this header.
func (q *packetQueue) receivable(head []byte) bool {
	need, known := vnet.Needs(head)
	return known && need&^vnet.Offloads(q.offloads.Load()) == 0
}

// tag returns the VLAN tag that the kernel has removed from the frame with these control
// messages. tpid is 0 if there was none.
func tag(control []byte) (tpid, tci uint16) {
	if len(control) < unix.SizeofCmsghdr+auxLen {
		return 0, 0
	}
	cmsg := (*unix.Cmsghdr)(unsafe.Pointer(&control[0]))
	if cmsg.Level != unix.SOL_PACKET || cmsg.Type != unix.PACKET_AUXDATA {
		return 0, 0
	}
	aux := control[unix.SizeofCmsghdr:]
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

func (q *packetQueue) WriteFD() int { return q.fd.Int() }

// WriteParts is WriteFrames for one frame.
//
// borrowed: head and rest, for the call.
func (q *packetQueue) WriteParts(head, rest []byte) error {
	if len(head) < vnet.MinFrame {
		return unix.EINVAL
	}
	if q.down.Load() {
		return unix.ENETDOWN
	}
	// The kernel allocates contiguous memory for as many bytes as the header length says.
	vnet.RewriteHdrLen(head)
	if len(rest) == 0 {
		return q.fd.Write(head)
	}
	return q.fd.Writev(head, rest)
}

// stats returns the counters, updated from the kernel's. The caller holds port.lock, and the
// queue is open.
func (q *packetQueue) stats() Stats {
	// Reading resets the kernel's counters.
	if st, err := unix.GetsockoptTpacketStats(q.FD(), unix.SOL_PACKET, unix.PACKET_STATISTICS); err == nil {
		q.dropped += uint64(st.Drops)
	}
	return q.counted()
}

// counted returns the counters without asking the kernel for its own. The caller holds
// port.lock.
func (q *packetQueue) counted() Stats {
	return Stats{Dropped: q.dropped, TooLong: q.tooLong.Load(), Invalid: q.invalid.Load()}
}

func (q *packetQueue) Close() error { return q.fd.Close() }
