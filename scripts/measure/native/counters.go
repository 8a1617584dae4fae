package native

// counters are what a subject's process counts.
type counters struct {
	Frames  [2]uint64 // moved: from the host to the LAN, and back
	Bytes   [2]uint64 // in them, with the virtio_net_hdr
	Refused uint64    // by the device that they were for
	// Allocations of the process since its start, before and after the others
	// were read.
	MallocsBefore, MallocsAfter uint64
}

// sub is what was moved since o was read.
func (c counters) sub(o counters) counters {
	for i := range c.Frames {
		c.Frames[i] -= o.Frames[i]
		c.Bytes[i] -= o.Bytes[i]
	}
	c.Refused -= o.Refused
	return c
}

// frames is their number in both directions.
func (c counters) frames() float64 { return float64(c.Frames[0] + c.Frames[1]) }

// reply is the answer to a command.
type reply struct {
	Error    string
	Counters counters
}

// mover is a subject within its process.
type mover interface {
	// counters leaves out allocations.
	counters() (counters, error)
	close() error
}
