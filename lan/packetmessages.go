package lan

import (
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/framefd"
)

// controlLen has room for one control message with struct tpacket_auxdata.
const controlLen = unix.SizeofCmsghdr + 24

// control has room for one control message, and its alignment.
type control struct {
	_    [0]unix.Cmsghdr
	data [controlLen]byte
}

// messages are the arguments of recvmmsg(2) or sendmmsg(2).
type messages struct {
	headers [framefd.MaxBurst]unix.Mmsghdr
	iovs    [framefd.MaxBurst][2]unix.Iovec
	control [framefd.MaxBurst]control
}

// newMessages returns messages of one or two iovecs each, the former with room
// for a control message.
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

// forget drops what the first n messages refer to.
func (m *messages) forget(n int) {
	for i := range m.iovs[:n] {
		m.iovs[i][0].Base, m.iovs[i][1].Base = nil, nil
	}
}
