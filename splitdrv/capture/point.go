package capture

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/splitnic/splitnic/internal/pcapng"
	"github.com/splitnic/splitnic/vnet"
)

// MaxCaptures is the largest number of captures of a Point at a time.
const MaxCaptures = 4

// ErrTooMany is returned if there are MaxCaptures captures already.
var ErrTooMany = fmt.Errorf("%d captures are running, which is the maximum", MaxCaptures)

// ErrUnknown is returned for a capture that is not running.
var ErrUnknown = errors.New("no such capture is running")

// Point has the captures of an endpoint. The zero value is ready for use. Any goroutine may use it.
type Point struct {
	running atomic.Pointer[[]*Capture] // nil: there are none; the list is replaced and never changed

	mu sync.Mutex // held to replace running
}

// Path returns a path of the point. Paths with the same name and description are one path in a
// capture. A nil Point returns nil, a path without captures.
func (p *Point) Path(name, description string) *Path {
	if p == nil {
		return nil
	}
	return &Path{point: p, is: identity{name, description}}
}

// Start begins a capture. The caller has to Copy it, and to End it.
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

// End ends the captures with that name, like Capture.End.
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

// Status returns the status of all running captures.
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

// Path is a path of frames between a netdevice and the fabric, such as a queue of a session. A data
// channel passes its frames to the Path, with one goroutine for each direction.
type Path struct {
	point *Point
	is    identity
}

// Sent captures frames that were read from a port and will be sent. It ignores ops with an Err. p may
// be nil.
//
// borrowed: ops and their frames, for the call.
func (p *Path) Sent(ops []vnet.ReadOp) {
	if p.Watched() {
		p.sent(ops)
	}
}

// Received captures frames that were received and will be written to a port. Each frame is in its
// Head. p may be nil.
//
// borrowed: ops and their frames, for the call.
func (p *Path) Received(ops []vnet.WriteOp) {
	if p.Watched() {
		p.received(ops)
	}
}

// Dropped captures a frame that was received and is dropped. why returns the reason; it is called
// only if the frame is captured. p must not be nil, as when Watched returns true.
//
// borrowed: frame, for the call.
func (p *Path) Dropped(frame []byte, why func() string) {
	for _, c := range p.point.list() {
		if s := c.begin(p.is); s != nil {
			c.add(s, pcapng.Inbound, frame, why)
		}
		c.finish()
	}
}

// Watched reports whether there is a capture. Otherwise Dropped need not be called. p may be nil. It
// is inlined in the paths of frames.
func (p *Path) Watched() bool { return p != nil && p.point.running.Load() != nil }

func (p *Path) sent(ops []vnet.ReadOp) {
	for _, c := range p.point.list() {
		if s := c.begin(p.is); s != nil {
			for i := range ops {
				if ops[i].Err == nil {
					c.add(s, pcapng.Outbound, ops[i].Frame, nil)
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
				c.add(s, pcapng.Inbound, ops[i].Head, nil)
			}
		}
		c.finish()
	}
}
