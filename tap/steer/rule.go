package steer

import (
	"fmt"
	"time"
)

// Pause is after how long without a frame a flow that went with the bulk is
// looked at again. A queue of super-frames is 32 MiB, which at 10 Gbit/s take
// 27 ms.
const Pause = 100 * time.Millisecond

// Rule says how the frames of one netdevice are spread over its queues.
type Rule struct {
	Classes
	Queues int // all of them, 2 at least; the last one is for latency-sensitive frames
	// Limit is how many bytes a frame may have to go there, the Ethernet header
	// included, a VLAN tag that the kernel keeps beside the frame not.
	Limit int
	// Pause is that of the package, if it is zero.
	Pause time.Duration
}

// Check reports what is wrong with r.
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
