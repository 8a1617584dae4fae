package discard

import (
	"errors"
	"time"
)

// Patience is the default of Config.Patience. A working reader does not wait that long for a
// processor on an overloaded machine, or for credits. The long time costs nothing: the queue
// of a reader that is gone is full anyway.
const Patience = 10 * time.Second

// shortest is the shortest queue, in frames, in which the reserve holds the
// rest of a datagram of 64 KiB with an MTU of 1500.
const shortest = 4 * 48

// Config describes the netdevice of a filter.
type Config struct {
	// Ingress is set for a macvtap: the program runs before that takes a frame (tc-bpf(8)), and
	// otherwise before a frame is put into a queue of a TAP device (TUNSETFILTEREBPF).
	Ingress bool
	Queues  int // number of the netdevice's queues: 1 to 256
	Length  int // length of each queue, in frames
	// Patience is the time without a read after which all frames pass; 0 means the constant
	// Patience.
	Patience time.Duration
}

// Status reports whether whole datagrams are discarded before a queue is full.
type Status struct {
	On bool `json:"on"`
	// Reason is why early discard is off.
	Reason string `json:"reason,omitempty"`
}

// StatusOf returns the status after an attempt to attach a filter; err is its result.
func StatusOf(err error) Status {
	if err != nil {
		return Status{Reason: err.Error()}
	}
	return Status{On: true}
}

// String returns "on", or "off" with the reason.
func (s Status) String() string {
	if s.On {
		return "on"
	}
	return "off: " + s.Reason
}

// ErrUnwanted is the reason if the netdevice's configuration turns the filter off.
var ErrUnwanted = errors.New("it is not wanted")
