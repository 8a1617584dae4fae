package messaging

// Port is one queue of a netdevice: where frames come from and go to. A frame
// is a virtio_net_hdr of vnet.HdrLen bytes followed by one Ethernet frame.
//
// ReadFrame and WriteFrame may run in two goroutines at once, one each. Neither
// blocks: both return unix.EAGAIN, bare, when the device is not ready. Package
// tap and package lan provide ports.
type Port interface {
	// FD is for poll(2): readable when ReadFrame may succeed, writable when
	// WriteFrame may. An error condition of it makes ReadFrame return an error,
	// or is over once ReadFrame has returned: a packet socket reports a card
	// that goes down like that, which is no end.
	FD() int
	// ReadFrame reads one frame into slot and returns the part of slot that
	// holds it. A frame that is too long is dropped with vnet.ErrTooLong,
	// one that the header cannot describe with vnet.ErrInvalid.
	ReadFrame(slot []byte) ([]byte, error)
	// WriteFrame writes one frame. It keeps nothing of it.
	WriteFrame(frame []byte) error
}

// WriteFDer is a Port with a descriptor of its own for writing: one that reads
// from several sources and has an epoll(7) descriptor for FD, which is never
// writable.
type WriteFDer interface {
	// WriteFD is for poll(2): writable when WriteFrame may succeed.
	WriteFD() int
}

// writeFD is what to wait at before a frame is written to p again.
func writeFD(p Port) int {
	if w, ok := p.(WriteFDer); ok {
		return w.WriteFD()
	}
	return p.FD()
}
