package capture

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"sync"
	"time"

	"golang.org/x/net/bpf"

	"github.com/splitnic/splitnic/internal/pcapng"
	"github.com/splitnic/splitnic/internal/units"
	"github.com/splitnic/splitnic/internal/wake"
	"github.com/splitnic/splitnic/vnet"
)

// Config is the configuration of a capture. Zero fields get their defaults.
type Config struct {
	Name string `json:"name"` // for Point.End; should be unique
	// Paths is a pattern of path.Match for the names of paths; default all paths.
	Paths string `json:"paths,omitempty"`
	// Filter selects an Ethernet frame, without the virtio_net_hdr, if it returns more than
	// 0; default every frame. Text is the expression of the filter.
	Filter []bpf.RawInstruction `json:"filter,omitempty"`
	Text   string               `json:"filter_text,omitempty"`
	// SnapLength is the largest number of bytes of a frame that are captured; default all.
	SnapLength int    `json:"snap_length,omitempty"`
	Frames     uint64 `json:"frames,omitempty"` // number after which the capture ends; default no limit
	// Buffer is the size of the memory for frames that the reader has not read, in bytes;
	// default 8 MiB.
	Buffer int `json:"buffer,omitempty"`
}

// Limits of a Config.
const (
	MaxSnapLength = vnet.MaxFrame - vnet.HdrLen
	defaultBuffer = 8 << 20
	MinBuffer     = 256 << 10 // the longest frame fits each half
	MaxBuffer     = 1 << 30
)

func (c *Config) complete() (*bpf.VM, error) {
	c.SnapLength = cmp.Or(c.SnapLength, MaxSnapLength)
	c.Buffer = cmp.Or(c.Buffer, defaultBuffer)
	if c.SnapLength < 1 || c.SnapLength > MaxSnapLength {
		return nil, fmt.Errorf("capture: snap length %d, must be 1 to %d", c.SnapLength, MaxSnapLength)
	}
	if c.Buffer < MinBuffer || c.Buffer > MaxBuffer {
		return nil, fmt.Errorf("capture: buffer of %s, must be %s to %s", units.Size(c.Buffer), units.Size(MinBuffer),
			units.Size(MaxBuffer))
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

// Capture is a running capture. One goroutine has to call Copy. Any may call the other methods.
type Capture struct {
	remove func(*Capture) // removes the capture from its Point
	cfg    Config
	filter *bpf.VM // nil: every frame passes
	began  time.Time
	ready  chan struct{} // of capacity one: there are frames, or the capture has ended

	mu      sync.Mutex // guards the following fields; held while frames are copied
	ended   bool       // no more frames are captured
	waiting bool       // the reader waits
	now     time.Time  // of the current batch
	filling []byte     // blocks that are not yet written, in half of the memory
	reading []byte     // the other half, which is being written
	comment []byte     // of the current frame
	paths   []*seen
	known   map[identity]*seen
	taken   uint64 // frames
	shown   int    // interfaces that have their block
}

// seen is a path that has had frames. It is an interface of the capture, from the first frame that
// found room.
type seen struct {
	intro           []byte // block of the interface
	number          int    // of the interface; -1: it has none yet
	frames, dropped uint64 // frames that were selected; of these, because the buffer was full
	wanted          bool
}

// identity identifies a path.
type identity struct{ name, description string }

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
		filling: make([]byte, 0, half), reading: make([]byte, 0, half), known: make(map[identity]*seen),
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
		s = &seen{intro: c.intro(is), number: -1, wanted: true}
		if c.cfg.Paths != "" {
			s.wanted, _ = path.Match(c.cfg.Paths, is.name) // complete has checked the pattern
		}
		if c.known[is] = s; s.wanted {
			c.paths = append(c.paths, s)
		}
	}
	if !s.wanted {
		return nil
	}
	c.now = time.Now()
	return s
}

func (c *Capture) intro(is identity) []byte {
	return pcapng.AppendInterface(nil, is.name, is.description, c.cfg.Text, c.cfg.SnapLength)
}

// add captures a frame, which begins with its virtio_net_hdr, if the filter selects it. why, if not
// nil, returns the reason for which the frame is dropped.
func (c *Capture) add(s *seen, direction pcapng.Flags, frame []byte, why func() string) {
	if c.ended || len(frame) < vnet.MinFrame {
		return
	}
	data := frame[vnet.HdrLen:]
	if c.filter != nil {
		// Programs that NewVM accepts return no error. A read behind the frame returns 0.
		if n, err := c.filter.Run(data); err != nil || n == 0 {
			return
		}
	}
	s.frames++
	p := pcapng.Packet{
		Interface: s.number, Time: c.now, Length: len(data), Data: data[:min(len(data), c.cfg.SnapLength)], Flags: direction,
	}
	c.describe(&p, frame, why)
	need := p.Size()
	if s.number < 0 {
		need += len(s.intro)
	}
	if len(c.filling)+need > cap(c.filling) {
		s.dropped++
		return
	}
	c.filling = c.introduce(c.filling, s)
	p.Interface = s.number
	c.filling = pcapng.AppendPacket(c.filling, &p)
	if c.taken++; c.taken == c.cfg.Frames {
		c.ended = true
	}
}

// describe adds what the virtio_net_hdr says about a packet, and why its frame is dropped.
func (c *Capture) describe(p *pcapng.Packet, frame []byte, why func() string) {
	c.comment = c.comment[:0]
	if why != nil {
		c.comment = append(append(c.comment, "dropped: "...), why()...)
	}
	var h vnet.Header
	h.Decode(frame)
	if h.Flags&vnet.FlagNeedsCsum != 0 {
		p.Flags |= pcapng.ChecksumNotReady
	}
	if h.GSOType != vnet.GSONone {
		p.Flags |= pcapng.Segments
		if why != nil {
			c.comment = append(c.comment, "; "...)
		}
		c.comment = append(c.comment, "super-frame, to be cut into segments with "...)
		c.comment = append(strconv.AppendUint(c.comment, uint64(h.GSOSize), 10), " bytes of payload"...)
	}
	p.Comment = c.comment
}

// introduce appends the interface of a path, if it has none yet.
func (c *Capture) introduce(b []byte, s *seen) []byte {
	if s.number >= 0 {
		return b
	}
	s.number = c.shown
	c.shown++
	return append(b, s.intro...)
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
		wake.Up(c.ready)
	}
}

// Copy writes the capture to w, as pcap-ng, until the capture has ended and all frames are written,
// or w fails. It returns the cause of ctx when ctx is done. program and comment describe the section.
func (c *Capture) Copy(ctx context.Context, w io.Writer, program, comment string) error {
	blocks := pcapng.AppendSection(nil, program, comment)
	for {
		if _, err := w.Write(blocks); err != nil {
			return err
		}
		var err error
		if blocks, err = c.next(ctx); errors.Is(err, io.EOF) {
			_, err = w.Write(c.statistics())
			return err
		} else if err != nil {
			return err
		}
	}
}

// next waits for blocks and returns them. They are valid until the next call of next. It returns
// io.EOF if the capture has ended and all blocks were returned, and the cause of ctx if ctx is done.
func (c *Capture) next(ctx context.Context) ([]byte, error) {
	for {
		if blocks, err := c.take(); len(blocks) > 0 || err != nil {
			return blocks, err
		}
		select {
		case <-c.ready:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// take exchanges the halves of the memory: the half that has been written is filled next.
func (c *Capture) take() ([]byte, error) {
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

// statistics returns the blocks at the end of the capture: what was dropped of each path. If no
// path has had a frame, there is an interface nevertheless, because tcpdump does not read a file
// without one.
func (c *Capture) statistics() (blocks []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.paths) == 0 {
		return c.intro(identity{"none", "no frame has come"})
	}
	for _, s := range c.paths {
		blocks = c.introduce(blocks, s)
		blocks = pcapng.AppendStatistics(blocks, &pcapng.Statistics{
			Interface: s.number, Start: c.began, End: time.Now(), Received: s.frames, Dropped: s.dropped,
		})
	}
	return blocks
}

// End ends the capture. Copy still writes the captured frames, and returns then. End is idempotent.
func (c *Capture) End() {
	c.mu.Lock()
	c.ended = true
	c.tell()
	c.mu.Unlock()
	c.remove(c)
}

// Status returns the status of the capture.
func (c *Capture) Status() Status {
	s := Status{
		Since: c.began, Paths: c.cfg.Paths, Filter: c.cfg.Text, SnapLength: c.cfg.SnapLength, Buffer: c.cfg.Buffer,
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.paths {
		s.Frames += p.frames
		s.Dropped += p.dropped
	}
	return s
}
