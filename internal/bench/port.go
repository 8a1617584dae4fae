package bench

import (
	"encoding/binary"
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

// kind is the purpose of a frame.
type kind uint8

const (
	kindNone   kind = iota // no frame
	kindWarm               // to warm up
	kindTimed              // to be counted, except the first one of a queue, which starts the time
	kindEnd                // the last frame of a queue that is counted
	kindReport             // the report of the receiver
	kindPing               // to be echoed
	kindPong               // an echo
)

// Offsets of the kind and the number of a frame. They are in its locally administered addresses.
const (
	kindAt   = vnet.HdrLen + 5
	numberAt = vnet.HdrLen + 8
)

// blank is the beginning of all frames: no offloads, from 02:00:… to 02:00:…, and the EtherType for
// experiments (IEEE 802, clause 9.2.4).
var blank = [vnet.MinFrame]byte{
	vnet.HdrLen: 2, vnet.HdrLen + 6: 2, vnet.HdrLen + 12: 0x88, vnet.HdrLen + 13: 0xb5,
}

// stamp writes the beginning of a frame. It leaves the rest of the slot as it is.
func stamp(slot []byte, k kind, number uint32) {
	copy(slot, blank[:])
	slot[kindAt] = byte(k)
	binary.BigEndian.PutUint32(slot[numberAt:], number)
}

// kindOf returns the kind of a frame of at least vnet.MinFrame bytes.
func kindOf(frame []byte) kind { return kind(frame[kindAt]) }

func numberOf(frame []byte) uint32 { return binary.BigEndian.Uint32(frame[numberAt:]) }
