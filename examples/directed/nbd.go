package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"syscall"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/directed"
)

// The transmission phase of the protocol of Network Block Devices: numbers are big-endian.
const (
	nbdRequestMagic = 0x25609513
	nbdReplyMagic   = 0x67446698
	nbdRequestSize  = 28 // magic, flags, type, cookie, offset, length
	nbdReplySize    = 16 // magic, error, cookie

	nbdRead       = 0
	nbdWrite      = 1
	nbdDisconnect = 2

	// nbdMaxLength is the largest length of a request that is served, in bytes.
	nbdMaxLength = 32 << 20
)

var errNBD = errors.New("the client broke the protocol of network block devices")

// blocks is what is served.
type blocks interface {
	io.ReaderAt
	io.WriterAt
}

// serveNBD serves the requests of a client, one after the other, until it disconnects.
func serveNBD(c io.ReadWriter, d blocks) error {
	var head [nbdRequestSize]byte
	buf := make([]byte, nbdReplySize, nbdReplySize+bufferSize)
	for {
		if _, err := io.ReadFull(c, head[:]); err != nil {
			return err
		}
		if magic := binary.BigEndian.Uint32(head[:]); magic != nbdRequestMagic {
			return fmt.Errorf("a request with the magic number %#x: %w", magic, errNBD)
		}
		kind := binary.BigEndian.Uint16(head[6:])
		at := int64(binary.BigEndian.Uint64(head[16:]))
		length := int(binary.BigEndian.Uint32(head[24:]))
		if kind == nbdDisconnect {
			return nil
		}
		if length > nbdMaxLength {
			return fmt.Errorf("a request of %d bytes: %w", length, errNBD)
		}
		if cap(buf) < nbdReplySize+length {
			buf = make([]byte, nbdReplySize, nbdReplySize+length)
		}
		data := buf[nbdReplySize : nbdReplySize+length]
		reply := buf[:nbdReplySize]
		var err error
		switch kind {
		case nbdRead:
			if _, err = d.ReadAt(data, at); err == nil {
				reply = buf[:nbdReplySize+length]
			}
		case nbdWrite:
			if _, err := io.ReadFull(c, data); err != nil {
				return err
			}
			_, err = d.WriteAt(data, at)
		default:
			err = syscall.EINVAL
		}
		binary.BigEndian.PutUint32(reply, nbdReplyMagic)
		binary.BigEndian.PutUint32(reply[4:], nbdError(err))
		copy(reply[8:], head[8:16])
		if _, err := c.Write(reply); err != nil {
			return err
		}
	}
}

// nbdError returns the number that the client gets for an error: some of those of Linux.
func nbdError(err error) uint32 {
	var errno syscall.Errno
	switch {
	case err == nil:
		return 0
	case errors.Is(err, &directed.StatusError{Status: protocol.DirectedDenied}):
		return uint32(syscall.EPERM)
	case errors.As(err, &errno) && errno == syscall.EINVAL:
		return uint32(errno)
	}
	return uint32(syscall.EIO)
}
