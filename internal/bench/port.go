package bench

import (
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/epoll"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/vnet"
)

// port is the port of one queue of an end.
type port interface {
	messaging.Port
	release()      // permits it to send
	again()        // sends again what seems lost; called every lostAfter, by one goroutine
	count() uint64 // of the messages that it has timed, or sent if it only sends
	Close() error
}

// errAgain is unix.EAGAIN as an error. It is converted once, because a conversion allocates.
var errAgain error = unix.EAGAIN

// gate is what all ports have in common. Its descriptor is readable while the port has frames. If the
// port is polled, raise and lower make no system calls.
type gate struct {
	*epoll.Event
	poll bool
	size int         // of the messages
	free atomic.Bool // released
}

func newGate(s *Spec) (*gate, error) {
	event, err := epoll.NewEvent()
	return &gate{Event: event, poll: s.Poll, size: s.Size}, err
}

func (g *gate) release() {
	g.free.Store(true)
	g.raise()
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

// readEach reads frames until there are none.
func readEach(ops []vnet.ReadOp, read func(slot []byte) ([]byte, error)) int {
	for i := range ops {
		op := &ops[i]
		if op.Frame, op.Err = read(op.Slot); op.Err != nil {
			return i + 1
		}
	}
	return len(ops)
}
