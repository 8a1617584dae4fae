package bench

import (
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/epoll"
)

// errAgain is unix.EAGAIN as an error. It is converted once, because a conversion allocates.
var errAgain error = unix.EAGAIN

// gate is the descriptor of a port, which is readable while the port has frames. If the port is
// polled, raise and lower make no system calls.
type gate struct {
	*epoll.Event
	poll bool
}

func newGate(poll bool) (gate, error) {
	event, err := epoll.NewEvent()
	return gate{event, poll}, err
}

// raise makes the descriptor readable. Any goroutine may call it.
func (g *gate) raise() {
	if !g.poll {
		g.Set()
	}
}

// lower makes the descriptor unreadable. Only one goroutine may call it.
func (g *gate) lower() {
	if !g.poll {
		g.Clear()
	}
}
