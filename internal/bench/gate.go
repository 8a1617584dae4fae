package bench

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// errAgain is unix.EAGAIN as an error. It is converted once, because a conversion allocates.
var errAgain error = unix.EAGAIN

// gate is the descriptor of a port: an eventfd(2) that is readable while the port has frames. If the
// port is polled, the methods make no system calls.
type gate struct {
	fd   int
	poll bool
	got  [8]byte // buffer of lower; on its stack it would be allocated
}

func newGate(poll bool) (gate, error) {
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return gate{}, fmt.Errorf("bench: eventfd: %w", err)
	}
	return gate{fd: fd, poll: poll}, nil
}

var one = [8]byte{0: 1, 7: 1} // not zero in either byte order

// raise makes the descriptor readable. Any goroutine may call it.
func (g *gate) raise() {
	if !g.poll {
		_, _ = unix.Write(g.fd, one[:]) // a full counter is readable, too
	}
}

// lower makes the descriptor unreadable. Only one goroutine may call it.
func (g *gate) lower() {
	if !g.poll {
		_, _ = unix.Read(g.fd, g.got[:])
	}
}

func (g *gate) close() { unix.Close(g.fd) }
