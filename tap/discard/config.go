package discard

import "time"

// Patience is the default of Config.Patience: longer than a reader that is at
// work waits for a processor, on a machine that has too much to do, or for
// credits. Nothing is lost by it: the queue of a reader that has gone is full.
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

// Config describes what a filter is for.
type Config struct {
	Hook   Hook
	Queues int // of the netdevice: 1 to 256
	Length int // of each queue, in frames
	// Patience is after how long without a read everything passes; 0 is the
	// package's.
	Patience time.Duration
}
