package lan

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/framefd"
	"github.com/splitnic/splitnic/vnet"
)

// controlLen is the size, in bytes, of one control message with struct tpacket_auxdata.
const controlLen = unix.SizeofCmsghdr + 24

// control has room for one control message, and the alignment of one.
type control struct {
	_    [0]unix.Cmsghdr
	data [controlLen]byte
}

// messages has the arguments of recvmmsg(2) or sendmmsg(2).
type messages struct {
	headers [framefd.MaxBurst]unix.Mmsghdr
	iovs    [framefd.MaxBurst][2]unix.Iovec
	control [framefd.MaxBurst]control
}

// newMessages returns messages to receive, with one iovec each and room for a control message,
// or messages to send, with up to two iovecs each.
func newMessages(receive bool) *messages {
	m := new(messages)
	for i := range m.headers {
		h := &m.headers[i].Hdr
		h.Iov = &m.iovs[i][0]
		if receive {
			h.SetIovlen(1)
			h.Control = &m.control[i].data[0]
		}
	}
	return m
}

// place returns the part of slot into which a frame is received. It is behind the headroom,
// so that there is room for a VLAN tag.
func place(slot []byte) []byte {
	return slot[vnet.Headroom:min(len(slot), vnet.Headroom+vnet.MaxFrame)]
}

// prepare lets message i be received into place(slot).
//
// borrowed: slot, until forget.
func (m *messages) prepare(i int, slot []byte) {
	buf := place(slot)
	h, part := &m.headers[i].Hdr, &m.iovs[i][0]
	part.Base = unsafe.SliceData(buf)
	part.SetLen(len(buf))
	h.SetControllen(controlLen)
	h.Flags = 0
}

// forget clears the references of the first n messages to frames.
func (m *messages) forget(n int) {
	for i := range m.iovs[:n] {
		m.iovs[i][0].Base, m.iovs[i][1].Base = nil, nil
	}
}
