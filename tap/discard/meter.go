package discard

import (
	"sync/atomic"
	"unsafe"
)

// meterSize is the room of one queue's counters. What the kernel writes and
// what the reader writes are in different cache lines.
const meterSize = 128

// Offsets in it.
const (
	passedAt = 0  // frames that were let pass
	seenAt   = 8  // what read was when a frame was to be dropped
	sinceAt  = 16 // and since when it has been that, ns
	readAt   = 64 // frames that were read
)

// mapping is memory that the kernel shares.
type mapping struct{ mem []byte }

// counter is the one of a queue at that offset.
func (m *mapping) counter(queue, offset int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&m.mem[queue*meterSize+offset]))
}

// Meter tells the filter of one queue what has been read. One goroutine uses
// it, the queue's reader. A nil Meter does nothing.
type Meter struct {
	passed, read *atomic.Uint64
	shared       *mapping // keeps it mapped
}

// Took says that n frames were read, whatever has become of them.
func (m *Meter) Took(n int) {
	if m != nil && n > 0 {
		m.read.Store(m.read.Load() + uint64(n))
	}
}

// Passed is how many frames have been let pass.
func (m *Meter) Passed() uint64 {
	if m == nil {
		return 0
	}
	return m.passed.Load()
}

// InStep reports whether as many frames were read as have been let pass.
func (m *Meter) InStep() bool { return m == nil || m.passed.Load() == m.read.Load() }

// Emptied says that the queue was found empty at a time at which passed frames, as
// Passed had returned, had been let pass at least. Those have left the queue. Others
// may have come by now, even many, if the reader had to wait for a processor.
func (m *Meter) Emptied(passed uint64) {
	if m == nil {
		return
	}
	if n := min(max(m.read.Load(), passed), m.passed.Load()); n != m.read.Load() {
		m.read.Store(n)
	}
}

// Waiting is how many frames wait in the queue, as far as is known: it may be
// wrong until the queue is found empty, and less than 0.
func (m *Meter) Waiting() int { return int(int64(m.passed.Load() - m.read.Load())) }
