package capture

import (
	"context"
	"fmt"
	"io"
	"path"
	"sync"
	"time"

	"golang.org/x/net/bpf"

	"github.com/splitnic/splitnic/vnet"
)

// Config is the configuration of a capture. Zero fields get their defaults.
type Config struct {
	Name string // for Point.End; should be unique
	// Paths is a pattern of path.Match for the names of paths; default all paths.
	Paths string
	// Filter selects an Ethernet frame, without the virtio_net_hdr, if it returns more than
	// 0; default every frame. Text is the expression of the filter.
	Filter []bpf.RawInstruction
	Text   string
	// SnapLength is the largest number of bytes of a frame that are captured; default all.
	SnapLength int
	Frames     uint64 // number after which the capture ends; default no limit
	// Buffer is the size of the memory for frames that the reader has not read, in bytes;
	// default 8 MiB.
	Buffer int
}

// Limits of a Config.
const (
	MaxSnapLength = vnet.MaxFrame - vnet.HdrLen
	DefaultBuffer = 8 << 20
	MinBuffer     = 256 << 10 // the longest frame fits each half
	MaxBuffer     = 1 << 30
)

func (c *Config) complete() (*bpf.VM, error) {
	if c.SnapLength == 0 {
		c.SnapLength = MaxSnapLength
	}
	if c.Buffer == 0 {
		c.Buffer = DefaultBuffer
	}
	if c.SnapLength < 1 || c.SnapLength > MaxSnapLength {
		return nil, fmt.Errorf("capture: snap length %d, must be 1 to %d", c.SnapLength, MaxSnapLength)
	}
	if c.Buffer < MinBuffer || c.Buffer > MaxBuffer {
		return nil, fmt.Errorf("capture: buffer of %d bytes, must be %d to %d", c.Buffer, MinBuffer, MaxBuffer)
	}
	if _, err := path.Match(c.Paths, ""); err != nil {
		return nil, fmt.Errorf("capture: paths %q: %w", c.Paths, err)
	}
	if len(c.Filter) == 0 {
		return nil, nil
	}
	program, ok := bpf.Disassemble(c.Filter)
	if !ok {
		return nil, fmt.Errorf("capture: filter %q has instructions that are not those of classic BPF", c.Text)
	}
	vm, err := bpf.NewVM(program)
	if err != nil {
		return nil, fmt.Errorf("capture: filter %q: %w", c.Text, err)
	}
	return vm, nil
}

// Capture is a running capture. Only one goroutine may call Next. Any may call the other methods.
type Capture struct {
	remove func(*Capture) // removes the capture from its Point
	cfg    Config
	filter *bpf.VM // nil: every frame passes
	began  time.Time
	ready  chan struct{} // of capacity one: there are frames, or the capture has ended

	mu      sync.Mutex // guards the following fields; held while frames are copied
	ended   bool       // no more frames are captured
	waiting bool       // the reader waits
	now     int64      // time of the current batch: Unix time in nanoseconds
	filling Frames     // frames for the next call of Next, in half of the memory
	reading Frames     // the other half, used by the reader
	paths   []*seen
	known   map[identity]*seen
	taken   uint64 // frames
}

// PathStatus is the status of a path that has had frames.
type PathStatus struct {
	Name        string
	Description string
	Frames      uint64 // that were selected
	Dropped     uint64 // of these, because the buffer was full
}

// seen is a path that has had frames.
type seen struct {
	PathStatus
	index  int
	wanted bool
}

// Status describes a capture.
type Status struct {
	Since      time.Time `json:"since"`
	Paths      string    `json:"paths,omitempty"`  // pattern
	Filter     string    `json:"filter,omitempty"` // expression
	SnapLength int       `json:"snap_length"`
	Buffer     int       `json:"buffer"`  // bytes
	Frames     uint64    `json:"frames"`  // that were selected
	Dropped    uint64    `json:"dropped"` // of these, because the reader is slow
}

func newCapture(cfg Config, remove func(*Capture)) (*Capture, error) {
	filter, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	half := cfg.Buffer / 2
	return &Capture{
		remove: remove, cfg: cfg, filter: filter, began: time.Now(), ready: make(chan struct{}, 1),
		filling: make(Frames, 0, half), reading: make(Frames, 0, half), known: make(map[identity]*seen),
	}, nil
}

// begin locks the capture for the frames of a path, until finish. It returns nil if the path is not
// captured.
func (c *Capture) begin(is identity) *seen {
	c.mu.Lock()
	if c.ended {
		return nil
	}
	s := c.known[is]
	if s == nil {
		s = &seen{PathStatus: PathStatus{Name: is.name, Description: is.description}, index: len(c.paths), wanted: true}
		if c.cfg.Paths != "" {
			s.wanted, _ = path.Match(c.cfg.Paths, s.Name) // complete has checked the pattern
		}
		if c.known[is] = s; s.wanted {
			c.paths = append(c.paths, s)
		}
	}
	if !s.wanted {
		return nil
	}
	c.now = time.Now().UnixNano()
	return s
}

// add captures a frame, which begins with its virtio_net_hdr, if the filter selects it. comment, if
// not nil, returns the comment of the frame.
func (c *Capture) add(s *seen, d Direction, frame []byte, comment func() string) {
	if c.ended || len(frame) < vnet.MinFrame {
		return
	}
	if c.filter != nil {
		// Programs that NewVM accepts return no error. A read behind the frame returns 0.
		if n, err := c.filter.Run(frame[vnet.HdrLen:]); err != nil || n == 0 {
			return
		}
	}
	s.Frames++
	said := ""
	if comment != nil {
		said = comment()
		said = said[:min(len(said), maxComment)]
	}
	if len(c.filling)+recordSize+len(said)+min(len(frame)-vnet.HdrLen, c.cfg.SnapLength) > cap(c.filling) {
		s.Dropped++
		return
	}
	c.filling = c.filling.append(c.now, s.index, d, frame, c.cfg.SnapLength, said)
	if c.taken++; c.taken == c.cfg.Frames {
		c.ended = true
	}
}

// finish unlocks the capture after begin.
func (c *Capture) finish() {
	c.tell()
	c.mu.Unlock()
}

// tell wakes the reader if it waits and there are frames, or the capture has ended. mu is held.
func (c *Capture) tell() {
	if c.waiting && (c.ended || len(c.filling) > 0) {
		c.waiting = false
		select {
		case c.ready <- struct{}{}:
		default:
		}
	}
}

// Next waits for frames and returns them. They are valid until the next call of Next. It returns
// io.EOF if the capture has ended and all frames were returned, and the cause of ctx if ctx is done.
func (c *Capture) Next(ctx context.Context) (Frames, error) {
	for {
		if frames, err := c.take(); len(frames) > 0 || err != nil {
			return frames, err
		}
		select {
		case <-c.ready:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// take exchanges the halves of the memory: the half that the reader has finished with is filled next.
func (c *Capture) take() (Frames, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.filling) == 0 {
		if c.ended {
			return nil, io.EOF
		}
		c.waiting = true
		return nil, nil
	}
	full := c.filling
	c.filling, c.reading = c.reading[:0], full
	return full, nil
}

// End ends the capture. Next still returns the captured frames, and then io.EOF. End is idempotent.
func (c *Capture) End() {
	c.mu.Lock()
	c.ended = true
	c.tell()
	c.mu.Unlock()
	c.remove(c)
}

// Began returns the time at which the capture began.
func (c *Capture) Began() time.Time { return c.began }

// Config returns the configuration of the capture, with the defaults.
func (c *Capture) Config() Config { return c.cfg }

// Paths returns the paths that have had frames.
func (c *Capture) Paths() []PathStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]PathStatus, 0, len(c.paths))
	for _, s := range c.paths {
		all = append(all, s.PathStatus)
	}
	return all
}

// Status returns the status of the capture.
func (c *Capture) Status() Status {
	s := Status{
		Since: c.began, Paths: c.cfg.Paths, Filter: c.cfg.Text, SnapLength: c.cfg.SnapLength, Buffer: c.cfg.Buffer,
	}
	for _, p := range c.Paths() {
		s.Frames += p.Frames
		s.Dropped += p.Dropped
	}
	return s
}
