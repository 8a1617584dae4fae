package native

// counters has the counters of a subject's process.
type counters struct {
	Frames  [2]uint64 // frames moved: from the host to the LAN, and back
	Bytes   [2]uint64 // bytes of these frames, with the virtio_net_hdr
	Refused uint64    // frames that the receiving device refused
	// Number of allocations of the process since its start, before and after the other counters
	// were read.
	MallocsBefore, MallocsAfter uint64
}

// sub returns the increase of the counters since o, except for allocations.
func (c counters) sub(o counters) counters {
	for i := range c.Frames {
		c.Frames[i] -= o.Frames[i]
		c.Bytes[i] -= o.Bytes[i]
	}
	c.Refused -= o.Refused
	return c
}

// frames returns the number of frames in both directions.
func (c counters) frames() float64 { return float64(c.Frames[0] + c.Frames[1]) }

// reply is the answer to a command.
type reply struct {
	Error    string
	Counters counters
}

// mover is a subject that moves frames, within its process.
type mover interface {
	// counters returns the counters without the allocations.
	counters() (counters, error)
	close() error
}
