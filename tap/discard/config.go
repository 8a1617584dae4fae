package discard

import "time"

// Patience is the default of Config.Patience. A working reader does not wait that long for a
// processor on an overloaded machine, or for credits. The long time costs nothing: the queue
// of a reader that is gone is full anyway.
const Patience = 10 * time.Second

// shortest is the shortest queue, in frames, in which the reserve holds the
// rest of a datagram of 64 KiB with an MTU of 1500.
const shortest = 4 * 48

// Hook is where in the kernel a program runs.
type Hook uint8

// The hooks.
const (
	TAP     Hook = iota // before a frame is put into a queue of a TAP device (TUNSETFILTEREBPF)
	Ingress             // before a macvtap takes a frame (tc-bpf(8))
)

// Config describes the netdevice of a filter.
type Config struct {
	Hook   Hook
	Queues int // number of the netdevice's queues: 1 to 256
	Length int // length of each queue, in frames
	// Patience is the time without a read after which all frames pass; 0 means the constant
	// Patience.
	Patience time.Duration
}
