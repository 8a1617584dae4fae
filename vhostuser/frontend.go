package vhostuser

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/printable"
)

// frontEnd is the connection with a front end, and the negotiated state. Only the goroutine that
// serves the connection uses it.
type frontEnd struct {
	d      *Device
	conn   *net.UnixConn
	feats  features
	proto  protocolFeatures
	agreed bool // the protocol features were negotiated: rings have to be enabled
	memory *memory
	status uint8
	in     []byte
	oob    []byte
	out    []byte
}

// read reads a message. If it returns an error, the message can have descriptors nevertheless.
func (f *frontEnd) read() (m message, err error) {
	n, oobn, flags, _, err := f.conn.ReadMsgUnix(f.in[:headerSize], f.oob)
	if oobn > 0 {
		var failed error
		if m.fds, failed = rights(f.oob[:oobn]); err == nil {
			err = failed
		}
	}
	switch {
	case err != nil:
		return m, err
	case n == 0:
		return m, io.EOF
	case flags&unix.MSG_CTRUNC != 0:
		return m, fmt.Errorf("%w: a message with too many descriptors", ErrFrontEnd)
	}
	if _, err = io.ReadFull(f.conn, f.in[n:headerSize]); err != nil {
		return m, ended(err)
	}
	if m.header, err = decodeHeader(f.in); err != nil {
		return m, err
	}
	m.body = f.in[headerSize:][:m.size]
	if _, err = io.ReadFull(f.conn, m.body); err != nil {
		return m, ended(err)
	}
	return m, m.check()
}

// ended returns io.EOF for a connection that ends within a message.
func ended(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return io.EOF
	}
	return err
}

// rights returns the descriptors in control messages.
func rights(oob []byte) (fds []int, err error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("%w: control message: %w", ErrFrontEnd, err)
	}
	for i := range messages {
		some, err := unix.ParseUnixRights(&messages[i])
		if err == nil {
			fds = append(fds, some...)
		}
	}
	return fds, nil
}

// closeAll closes the descriptors that are still in the message. Those that were taken are -1.
func closeAll(fds []int) {
	for _, fd := range fds {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

func (f *frontEnd) reply(r request, body ...uint32) error {
	f.out = appendReply(f.out[:0], r, body...)
	_, err := f.conn.Write(f.out)
	return err
}

// number replies with a number of 64 bits.
func (f *frontEnd) number(r request, n uint64) error { return f.reply(r, uint32(n), uint32(n>>32)) }

// peerOf returns the name and number of the process at the other end of a connection.
func peerOf(c *net.UnixConn) string {
	raw, err := c.SyscallConn()
	if err != nil {
		return ""
	}
	name := ""
	_ = raw.Control(func(fd uintptr) {
		if u, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			name = fmt.Sprintf("pid %d, uid %d", u.Pid, u.Uid)
			if comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", u.Pid)); err == nil {
				name = fmt.Sprintf("%s (%s)", printable.Text(string(comm[:max(len(comm)-1, 0)])), name)
			}
		}
	})
	return name
}
