package capture

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
)

// MaxCaptures is how many captures a Point may have at a time.
const MaxCaptures = 4

// ErrTooMany is returned for one more.
var ErrTooMany = fmt.Errorf("%d captures are running, which is the most that there can be", MaxCaptures)

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
	c, err := newCapture(p, cfg)
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
