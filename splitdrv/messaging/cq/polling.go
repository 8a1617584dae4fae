package cq

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/spin"
)

// smallFrame is the largest average length, in bytes, of frames after which an adaptive
// worker polls. With longer frames throughput matters more than latency, and handling many
// completions after a sleep costs less.
const smallFrame = 1024

// polling determines for how long a worker polls its empty queue before it sleeps. Only the
// worker's goroutine uses it, except for the atomic fields.
type polling struct {
	limit *spin.Limit
	// Written when the handler changes.
	longest  atomic.Int64 // nanoseconds
	adaptive atomic.Bool

	// Moved returns the worker's counts of frames and bytes; nil if it moves no frames.
	Moved         func() (frames, bytes uint64)
	frames, bytes uint64 // counts when the queue was last empty
	window        spin.Window
	entered       bool // limit is entered
}

func (p *polling) configure(h *Handler) {
	p.longest.Store(int64(h.Spin))
	p.adaptive.Store(h.Adaptive)
}

// begin returns for how long to poll now. If that is not 0, the worker calls end afterwards.
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

// small reports whether the frames since the last call were small on average.
func (p *polling) small() bool {
	if p.Moved == nil {
		return true
	}
	frames, bytes := p.Moved()
	small := bytes-p.bytes <= (frames-p.frames)*smallFrame
	p.frames, p.bytes = frames, bytes
	return small
}

// sleep records that the worker is about to sleep.
func (p *polling) sleep() {
	if p.adaptive.Load() {
		p.window.Sleep(time.Now())
	}
}

// wake records that the worker has been woken.
func (p *polling) wake() {
	if p.adaptive.Load() {
		p.window.Wake(time.Now(), time.Duration(p.longest.Load()))
	}
}

// Notification requests the events of a completion queue (ibv_req_notify_cq(3)). A worker
// arms it each time before it sleeps: the event that has woken it may belong to a
// completion that it had already polled, and each request raises only one event.
type Notification struct {
	CQ        fabric.CQ
	Solicited bool
	armed     bool // at least once
}

// Arm requests an event. It first reads the event of the last request, if that has been
// raised. If not, that event may still be raised at any time, so arm requests another one
// in any case. At most two events are unread, because each call reads one.
func (n *Notification) Arm() error {
	if n.armed {
		if _, err := n.CQ.ReadEvent(); err != nil {
			return err
		}
	}
	n.armed = true
	err := n.CQ.Arm(n.Solicited)
	if n.Solicited && errors.Is(err, fabric.ErrUnsupported) {
		n.Solicited = false // every completion raises an event from now on
		err = n.CQ.Arm(false)
	}
	return err
}
