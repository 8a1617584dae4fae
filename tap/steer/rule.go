package steer

import (
	"fmt"
	"time"
)

// Pause is the time without a frame after which a flow that went with the bulk can be
// latency-sensitive again. A queue of super-frames has 32 MiB, which take 27 ms at 10 Gbit/s.
const Pause = 100 * time.Millisecond

// Rule says how the frames of one netdevice are spread over its queues.
type Rule struct {
	Classes
	Queues int // number of all queues, at least 2; the last one is for latency-sensitive frames
	// Limit is the length in bytes up to which a frame may go to the last queue. It includes
	// the Ethernet header, but not a VLAN tag that the kernel keeps outside the frame.
	Limit int
	// Pause replaces the constant Pause, unless it is 0.
	Pause time.Duration
}

// Check returns an error if r is invalid.
func (r Rule) Check() error {
	switch {
	case r.Queues < 2 || r.Queues > 256:
		return fmt.Errorf("steering into %d queues: must be 2 to 256", r.Queues)
	case r.Limit < 1 || r.Limit > 1<<16:
		return fmt.Errorf("latency-sensitive frames of up to %d bytes: must be 1 to %d", r.Limit, 1<<16)
	case r.Pause < 0:
		return fmt.Errorf("a pause of %v: must not be negative", r.Pause)
	}
	return r.Classes.Check()
}

// Hook is where in the kernel a program runs.
type Hook uint8

// The hooks.
const (
	TAP     Hook = iota // where a TAP device chooses the queue for a frame
	Fanout              // where a group of packet sockets chooses one for a frame that came in
	Ingress             // before a macvtap chooses a queue for a frame
)

// Status reports whether a latency queue is in use.
type Status struct {
	On bool `json:"on"`
	// Reason is why the latency queue is off.
	Reason string `json:"reason,omitempty"`
	Classes
	Limit int `json:"limit,omitempty"` // length in bytes of the longest frame that goes there
}
