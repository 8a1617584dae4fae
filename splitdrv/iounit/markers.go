package iounit

import (
	"sync"
	"sync/atomic"

	"golang.org/x/time/rate"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/vnet"
)

// markers are those for one host (protocol.Marker) that come from the LAN. The LAN has
// put each into one of the host's queues, and frames before it into any of them: so it
// is sent through all, behind what lies in each.
type markers struct {
	wake func()      // has the readers of all queues look
	on   func() bool // the host may have direct connections
	rate *rate.Limiter

	mu     sync.Mutex // guards what the queues have
	queues []markerQueue
}

const (
	// markersWaiting bounds how many markers wait for a queue. More are lost, and sent
	// again by their sender.
	markersWaiting = 64
	// markerRate and markerBurst bound how many are copied, in a second and at once: who
	// sends some to a host must not have it get many more.
	markerRate, markerBurst = 2000, 256
	// queueHolds is more frames than any LAN queue has room for: 8 MiB of the shortest.
	queueHolds = 1 << 15
)

// markerQueue are the markers that wait for one queue.
type markerQueue struct {
	waiting []waitingMarker
	count   atomic.Int32 // of them
	ready   atomic.Int32 // of them, the first ones: what lay in the queue before has been read
}

// waitingMarker is a marker that came through another queue.
type waitingMarker struct {
	frame [protocol.MarkerLen]byte
	read  int // frames read from this queue since then
}

func newMarkers(queues int, on func() bool, wake func()) *markers {
	if queues < 2 {
		return nil
	}
	return &markers{on: on, wake: wake, rate: rate.NewLimiter(markerRate, markerBurst),
		queues: make([]markerQueue, queues)}
}

// saw enters a marker that came through a queue.
func (m *markers) saw(queue int, frame []byte) {
	if m == nil || len(frame) != protocol.MarkerLen || !m.on() || !m.rate.Allow() {
		return
	}
	m.mu.Lock()
	for i := range m.queues {
		if q := &m.queues[i]; i != queue && len(q.waiting) < markersWaiting {
			q.waiting = append(q.waiting, waitingMarker{frame: [protocol.MarkerLen]byte(frame)})
			q.count.Store(int32(len(q.waiting)))
		}
	}
	m.mu.Unlock()
	m.wake()
}

// before is how many markers wait for a queue. It is asked before the queue is read.
func (m *markers) before(queue int) int {
	if m == nil {
		return 0
	}
	return int(m.queues[queue].count.Load())
}

// passed enters that a queue was read after so many markers had come for it: some
// frames, or all that there were.
func (m *markers) passed(queue, before, frames int, dry bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	q := &m.queues[queue]
	ready := 0
	for i := range q.waiting[:before] {
		w := &q.waiting[i]
		if w.read += frames; dry || w.read >= queueHolds {
			ready = i + 1
		}
	}
	q.ready.Store(int32(max(ready, int(q.ready.Load()))))
}

// emit reads markers that are ready for a queue as if they had come from it.
func (m *markers) emit(queue int, ops []vnet.ReadOp) (n int) {
	if m == nil || m.queues[queue].ready.Load() == 0 {
		return 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	q := &m.queues[queue]
	for n < min(len(ops), int(q.ready.Load())) {
		op := &ops[n]
		op.Frame, op.Err = nil, vnet.ErrTooLong
		if len(op.Slot) >= protocol.MarkerLen {
			op.Frame, op.Err = op.Slot[:copy(op.Slot, q.waiting[n].frame[:])], nil
		}
		n++
	}
	q.waiting = q.waiting[:copy(q.waiting, q.waiting[n:])]
	q.count.Store(int32(len(q.waiting)))
	q.ready.Add(int32(-n))
	return n
}
