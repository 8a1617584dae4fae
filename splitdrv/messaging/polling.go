package messaging

import (
	"sync/atomic"
	"time"

	"github.com/splitnic/splitnic/internal/spin"
)

// smallFrame is the average length, in bytes, of frames behind which an adaptive worker
// polls: with longer ones it is throughput that matters, and a queue that fills meanwhile is
// handled at less cost.
const smallFrame = 1024

// polling is how a worker polls its empty queue before it sleeps. All but what its handler
// says is the worker's goroutine's.
type polling struct {
	limit *spin.Limit
	// Of the handler, written by who changes it.
	longest  atomic.Int64 // nanoseconds
	adaptive atomic.Bool

	// moved counts the frames that the worker has moved; nil if it moves none.
	moved         func() (frames, bytes uint64)
	frames, bytes uint64 // at the last time that the queue was empty
	window        spin.Window
	entered       bool // the limit
}

func (p *polling) configure(h *Handler) {
	p.longest.Store(int64(h.Spin))
	p.adaptive.Store(h.Adaptive)
}

// begin is for how long to poll now. It is followed by end, if that is not 0.
func (p *polling) begin() time.Duration {
	longest := time.Duration(p.longest.Load())
	if longest == 0 || !p.adaptive.Load() {
		return longest
	}
	small := p.small()
	length := p.window.Length(longest)
	if length == 0 || !small || p.limit == nil || !p.limit.Enter() {
		return 0
	}
	p.entered = true
	return length
}

func (p *polling) end() {
	if p.entered {
		p.entered = false
		p.limit.Leave()
	}
}

// small reports whether the frames since the last call were small ones.
func (p *polling) small() bool {
	if p.moved == nil {
		return true
	}
	frames, bytes := p.moved()
	small := bytes-p.bytes <= (frames-p.frames)*smallFrame
	p.frames, p.bytes = frames, bytes
	return small
}

// sleep says that the worker is about to sleep, and wake that it has.
func (p *polling) sleep() {
	if p.adaptive.Load() {
		p.window.Sleep(time.Now())
	}
}

func (p *polling) wake() {
	if p.adaptive.Load() {
		p.window.Wake(time.Now(), time.Duration(p.longest.Load()))
	}
}
