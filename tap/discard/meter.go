package discard

import (
	"sync/atomic"
	"unsafe"
)

// meterSize is the size of one queue's counters in bytes. Counters that the kernel writes and
// counters that the reader writes are in different cache lines.
const meterSize = 128

// Offsets of the counters of a queue.
const (
	passedAt  = 0  // number of frames that the program let pass
	seenAt    = 8  // number of frames read when a frame was to be dropped
	sinceAt   = 16 // time since when it has been that number, ns
	droppedAt = 24 // number of frames that the program dropped, at an ingress
	readAt    = 64 // number of frames that were read
)

// mapping is memory shared with the kernel.
type mapping struct{ mem []byte }

// counter returns the counter of a queue at this offset.
func (m *mapping) counter(queue, offset int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&m.mem[queue*meterSize+offset]))
}

// Meter counts the frames read from one queue, for the filter. Only one goroutine uses it, the
// queue's reader. A nil Meter does nothing.
type Meter struct {
	passed, read *atomic.Uint64
	shared       *mapping // keeps it mapped
}

// Took adds n frames that were read, whether they were delivered or dropped.
func (m *Meter) Took(n int) {
	if m != nil && n > 0 {
		m.read.Store(m.read.Load() + uint64(n))
	}
}

// Passed returns how many frames the program has let pass.
func (m *Meter) Passed() uint64 {
	if m == nil {
		return 0
	}
	return m.passed.Load()
}

// InStep reports whether as many frames were read as the program has let pass.
func (m *Meter) InStep() bool { return m == nil || m.passed.Load() == m.read.Load() }

// Emptied records that the queue was found empty after Passed had returned passed: at least
// that many frames have left the queue. More frames, even many, may have come by now if the
// reader had to wait for a processor.
func (m *Meter) Emptied(passed uint64) {
	if m == nil {
		return
	}
	if n := min(max(m.read.Load(), passed), m.passed.Load()); n != m.read.Load() {
		m.read.Store(n)
	}
}

// Waiting returns an estimate of how many frames wait in the queue. It may be wrong until the
// queue is found empty, and less than 0.
func (m *Meter) Waiting() int { return int(int64(m.passed.Load() - m.read.Load())) }
