package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/splitnic/splitnic/internal/pcapng"
	"github.com/splitnic/splitnic/splitdrv/capture"
	"github.com/splitnic/splitnic/vnet"
)

// captureFile writes a capture in the pcapng format. Each path is an interface, whose block is
// written with the first frame of the path.
type captureFile struct {
	w       io.Writer
	capture *capture.Capture
	section pcapng.Section
	paths   []capture.PathStatus // the known paths; their counts are out of date
	ids     map[int]int          // interface numbers, by path
	buf     []byte               // blocks not yet written to w
}

// writtenAtOnce is the minimum size of a write in bytes, as long as more frames are waiting.
const writtenAtOnce = 256 << 10

// writeCapture writes captured frames to w until the capture ends, ctx is done or w fails. When
// the capture ends, it writes for each path how many frames were dropped.
func writeCapture(ctx context.Context, w io.Writer, c *capture.Capture, section pcapng.Section) error {
	section.Hardware, section.OS = runtime.GOARCH, runtime.GOOS
	f := captureFile{w: w, capture: c, section: section, ids: map[int]int{}}
	f.buf = pcapng.AppendSection(f.buf, &f.section)
	for {
		if err := f.flush(); err != nil {
			return err
		}
		frames, err := c.Next(ctx)
		if errors.Is(err, io.EOF) {
			return f.finish()
		}
		if err != nil {
			return err
		}
		for frame := range frames.All() {
			f.add(&frame)
			if len(f.buf) >= writtenAtOnce {
				if err := f.flush(); err != nil {
					return err
				}
			}
		}
	}
}

func (f *captureFile) flush() error {
	_, err := f.w.Write(f.buf)
	f.buf = f.buf[:0]
	return err
}

func (f *captureFile) add(frame *capture.Frame) {
	flags := pcapng.Inbound
	if frame.Direction == capture.Outbound {
		flags = pcapng.Outbound
	}
	if frame.Header.Flags&vnet.FlagNeedsCsum != 0 {
		flags |= pcapng.ChecksumNotReady
	}
	comment := frame.Comment
	if comment != "" {
		comment = "dropped: " + comment
	}
	if frame.Header.GSOType != vnet.GSONone {
		flags |= pcapng.Segments
		if comment != "" {
			comment += "; "
		}
		comment += fmt.Sprintf("super-frame, to be cut into segments with %d bytes of payload", frame.Header.GSOSize)
	}
	p := pcapng.Packet{
		Interface: f.id(frame.Path), Time: frame.Time, Length: frame.Length, Data: frame.Data, Flags: flags, Comment: comment,
	}
	f.buf = pcapng.AppendPacket(f.buf, &p)
}

// id returns the interface number of a path. If the path has no interface yet, id appends one.
func (f *captureFile) id(path int) int {
	if id, ok := f.ids[path]; ok {
		return id
	}
	if path >= len(f.paths) {
		f.paths = f.capture.Paths()
	}
	id := len(f.ids)
	f.ids[path] = id
	f.addInterface(f.paths[path].Name, f.paths[path].Description)
	return id
}

func (f *captureFile) addInterface(name, description string) {
	cfg := f.capture.Config()
	f.buf = pcapng.AppendInterface(f.buf, &pcapng.Interface{
		Name: name, Description: description, Filter: cfg.Text, SnapLength: cfg.SnapLength,
	})
}

// finish writes the statistics. If no path has had a frame, it writes an interface nevertheless,
// because tcpdump does not read a file without one.
func (f *captureFile) finish() error {
	f.paths = f.capture.Paths()
	if len(f.paths) == 0 {
		f.addInterface("none", "no frame has come")
	}
	for i, p := range f.paths {
		s := pcapng.Statistics{
			Interface: f.id(i), Start: f.capture.Began(), End: time.Now(), Received: p.Frames, Dropped: p.Dropped,
		}
		f.buf = pcapng.AppendStatistics(f.buf, &s)
	}
	return f.flush()
}
