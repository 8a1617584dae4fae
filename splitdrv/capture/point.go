package capture

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/splitnic/splitnic/vnet"
)

// MaxCaptures is how many captures a Point may have at a time.
const MaxCaptures = 4

// ErrTooMany is returned for one more.
var ErrTooMany = fmt.Errorf("%d captures are running, which is the maximum", MaxCaptures)

// ErrUnknown is returned for a capture that is not running.
var ErrUnknown = errors.New("no such capture is running")

// Point is where the frames of an endpoint can be captured. Its zero value is ready. It may
// be used by any goroutine.
type Point struct {
	running atomic.Pointer[[]*Capture] // nil: there are none; never changed, only replaced

	mu sync.Mutex // of those who replace it
}

// Path returns a path of the point. Paths with the same name and description are one path
// for who captures. A nil Point has nil paths, by which nothing is captured.
func (p *Point) Path(name, description string) *Path {
	if p == nil {
		return nil
	}
	return &Path{point: p, is: identity{name, description}}
}

// Start begins a capture, which its caller has to read, and to Close.
func (p *Point) Start(cfg Config) (*Capture, error) {
	c, err := newCapture(cfg, p.remove)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.list()
	if len(all) >= MaxCaptures {
		return nil, ErrTooMany
	}
	all = append(slices.Clip(all), c)
	p.running.Store(&all)
	return c, nil
}

// End ends the captures of that name in good order, as Capture.End does.
func (p *Point) End(name string) error {
	err := ErrUnknown
	for _, c := range p.list() {
		if c.cfg.Name == name {
			c.End()
			err = nil
		}
	}
	return err
}

// Status describes the captures that are running.
func (p *Point) Status() []Status {
	all := []Status{}
	for _, c := range p.list() {
		all = append(all, c.Status())
	}
	return all
}

func (p *Point) list() []*Capture {
	if all := p.running.Load(); all != nil {
		return *all
	}
	return nil
}

// remove takes out a capture, if it is there.
func (p *Point) remove(c *Capture) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := slices.DeleteFunc(slices.Clone(p.list()), func(o *Capture) bool { return o == c })
	if len(all) == 0 {
		p.running.Store(nil)
		return
	}
	p.running.Store(&all)
}

// Path is one way of frames between a netdevice and the fabric, such as a queue of a
// session. A data channel shows it what passes, one goroutine for each direction.
type Path struct {
	point *Point
	is    identity
}

// Sent shows frames that were read from a port and are to be sent; those with an Err are
// none. p may be nil.
//
// borrowed: ops and their frames, for the call.
func (p *Path) Sent(ops []vnet.ReadOp) {
	if p.watched() {
		p.sent(ops)
	}
}

// Received shows frames that have come and are to be written to a port, each of which
// lies in its Head. p may be nil.
//
// borrowed: ops and their frames, for the call.
func (p *Path) Received(ops []vnet.WriteOp) {
	if p.watched() {
		p.received(ops)
	}
}

// Dropped shows a frame that has come and goes no further, and why, in words that are asked
// for where somebody captures the frame. p may be nil.
//
// borrowed: frame, for the call.
func (p *Path) Dropped(frame []byte, why func() string) {
	for _, c := range p.point.list() {
		if s := c.begin(p.is); s != nil {
			c.add(s, Inbound, frame, why)
		}
		c.finish()
	}
}

// Watched reports whether anybody captures, so that Dropped need not be called. p may be nil.
func (p *Path) Watched() bool { return p.watched() }

// watched reports whether anybody captures. All of it is inlined where frames pass.
func (p *Path) watched() bool { return p != nil && p.point.running.Load() != nil }

func (p *Path) sent(ops []vnet.ReadOp) {
	for _, c := range p.point.list() {
		if s := c.begin(p.is); s != nil {
			for i := range ops {
				if ops[i].Err == nil {
					c.add(s, Outbound, ops[i].Frame, nil)
				}
			}
		}
		c.finish()
	}
}

func (p *Path) received(ops []vnet.WriteOp) {
	for _, c := range p.point.list() {
		if s := c.begin(p.is); s != nil {
			for i := range ops {
				c.add(s, Inbound, ops[i].Head, nil)
			}
		}
		c.finish()
	}
}
