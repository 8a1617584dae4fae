package pools

import (
	"sync/atomic"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/core"
)

// Channel has what the pool manager shares with the sender and the receiver of a data channel. They are
// separate structs, because different processors write to them.
type Channel struct {
	Sender   *Sending
	Receiver *Receiving

	number   int
	first    []Config // first pools
	noCredit uint64   // value of TxNoCredit at the last tick
	held     uint64   // value of RxThrottled when the peer last asked for a pool
	asleep   int      // ticks in a row at which the sender slept without credit
}

// Sending is what a pool manager shares with a sender.
type Sending struct {
	Queue    core.Queue[bufpool.Action] // actions for the sender
	Credits                             // the remote pools of the channel
	Slots    *Slots
	Sequence atomic.Uint64 // send modes: sequence number of the next message; the sender writes it
	Count    core.TxCount
}

// Receiving is what a pool manager shares with a receiver.
type Receiving struct {
	Queue core.Queue[core.RxEvent] // actions for the receiver
	Count core.RxCount
}
