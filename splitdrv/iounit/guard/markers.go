package guard

import (
	"sync"
	"sync/atomic"

	"golang.org/x/time/rate"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/vnet"
)

// markers handles the markers (protocol.Marker) for one host that arrive from the LAN. A
// marker arrives in one of the host's queues, and frames sent before it in any of them. So
// the marker is copied to all queues, behind the frames that are already there.
type markers struct {
	wake func()      // wakes the readers of all queues
	on   func() bool // reports whether the host may have direct connections
	rate *rate.Limiter

	mu     sync.Mutex // guards the queues
	queues []markerQueue
}

const (
	// markersWaiting is the largest number of markers that wait for a queue. More are lost,
	// and sent again by their sender.
	markersWaiting = 64
	// markerRate and markerBurst limit how many markers are copied, per second and at once,
	// so that markers cannot be used to send many more frames to a host.
	markerRate, markerBurst = 2000, 256
	// queueHolds is more frames than any LAN queue has room for: 8 MiB of the shortest.
	queueHolds = 1 << 15
)

// markerQueue has the markers that wait for one queue.
type markerQueue struct {
	waiting []waitingMarker
	count   atomic.Int32 // number of waiting markers
	ready   atomic.Int32 // number of the first ones that are ready: earlier frames of the queue were read
}

// waitingMarker is a marker that arrived in another queue.
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

// saw records a marker that arrived in a queue.
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

// before returns how many markers wait for a queue. It is called before the queue is read.
func (m *markers) before(queue int) int {
	if m == nil {
		return 0
	}
	return int(m.queues[queue].count.Load())
}

// passed records that a number of frames was read from a queue, or all of them (dry), after
// before markers had arrived for it.
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

// emit reads the markers that are ready for a queue as if they had arrived in it.
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
