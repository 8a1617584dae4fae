package capture_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopacket/gopacket/pcapgo"
	"golang.org/x/net/bpf"

	"github.com/splitnic/splitnic/splitdrv/capture"
	"github.com/splitnic/splitnic/vnet"
)

// frame returns an Ethernet frame of n bytes, with a virtio header in front.
func frame(n int, fill byte) []byte {
	f := bytes.Repeat([]byte{fill}, vnet.HdrLen+n)
	h := vnet.Header{}
	h.Encode(f)
	return f
}

// super returns a super-frame; segments is its comment.
func super(n int, fill byte) []byte {
	f := frame(n, fill)
	(&vnet.Header{GSOType: vnet.GSOTCPv4, GSOSize: 1448}).Encode(f)
	return f
}

const segments = "super-frame, to be cut into segments with 1448 bytes of payload"

func reads(frames ...[]byte) []vnet.ReadOp {
	var ops []vnet.ReadOp
	for _, f := range frames {
		ops = append(ops, vnet.ReadOp{Frame: f})
	}
	return ops
}

func writes(frames ...[]byte) []vnet.WriteOp {
	var ops []vnet.WriteOp
	for _, f := range frames {
		ops = append(ops, vnet.WriteOp{Head: f})
	}
	return ops
}

func started(t testing.TB, p *capture.Point, cfg capture.Config) *capture.Capture {
	t.Helper()
	c, err := p.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.End)
	return c
}

// rest returns the remaining frames of an ended capture, a line for each: the path, the direction,
// the captured bytes and the length, the last captured byte, and the comment.
func rest(t testing.TB, c *capture.Capture) (lines []string) {
	t.Helper()
	var file bytes.Buffer
	if err := c.Copy(t.Context(), &file, "", ""); err != nil {
		t.Fatal(err)
	}
	lines, _ = parse(t, file.Bytes())
	return lines
}

// parse returns the lines and the statistics of the paths of a capture.
func parse(t testing.TB, file []byte) (lines []string, paths []pcapgo.NgInterface) {
	t.Helper()
	r, err := pcapgo.NewNgReader(bytes.NewReader(file), pcapgo.NgReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for {
		data, ci, opts, err := r.ReadPacketDataWithOptions()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		path, err := r.Interface(ci.InterfaceIndex)
		if err != nil {
			t.Fatal(err)
		}
		if time.Since(ci.Timestamp) > time.Hour {
			t.Errorf("a frame of %v", ci.Timestamp)
		}
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s %d %d/%d %q %s", path.Name, opts.Flags.Direction, len(data),
			ci.Length, data[len(data)-1], strings.Join(opts.Comments, "|"))))
	}
	for i := range r.NInterfaces() {
		path, err := r.Interface(i)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	return lines, paths
}

func expect(t testing.TB, got []string, want ...string) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("captured %q, want %q", got, want)
	}
}

// isA is a filter of frames whose byte 14 is 'a'.
var isA = []bpf.RawInstruction{{Op: 0x30, K: 14}, {Op: 0x15, Jf: 1, K: 'a'}, {Op: 6, K: 0x40000}, {Op: 6}}

// TestDroppedFrames captures dropped frames with the reason as comment. Comments need space in the
// buffer, as frames do.
func TestDroppedFrames(t *testing.T) {
	var p capture.Point
	drops := p.Path("host alpha dropped", "")
	if drops.Watched() || (*capture.Path)(nil).Watched() {
		t.Error("nobody captures")
	}
	c, other := started(t, &p, capture.Config{SnapLength: 20}), started(t, &p, capture.Config{Paths: "uplink *"})
	if !drops.Watched() {
		t.Error("somebody captures")
	}
	asked := 0
	for n, f := range [][]byte{frame(60, 'a'), super(60, 'b')} {
		drops.Dropped(f, func() string { asked++; return fmt.Sprintf("reason %d", n) })
	}
	drops.Received(writes(frame(60, 'c')))
	c.End()
	other.End()
	expect(t, rest(t, c), `host alpha dropped 1 20/60 'a' dropped: reason 0`,
		`host alpha dropped 1 20/60 'b' dropped: reason 1; `+segments,
		`host alpha dropped 1 20/60 'c'`)
	if got := rest(t, other); len(got) > 0 || asked != 2 {
		t.Errorf("%q of other paths; the reason was asked for %d times", got, asked)
	}
	// Only the first of these comments fits.
	c = started(t, &p, capture.Config{Buffer: capture.MinBuffer})
	long := strings.Repeat("x", 70000)
	for range 4 {
		drops.Dropped(frame(60, 1), func() string { return long })
	}
	if s := c.Status(); s.Frames != 4 || s.Dropped != 3 {
		t.Errorf("%+v", s)
	}
}

func TestCapture(t *testing.T) {
	for name, c := range map[string]struct {
		cfg  capture.Config
		want []string
	}{
		"all": {capture.Config{}, []string{
			`uplink queue 0 2 60/60 'a'`, `uplink queue 0 2 100/100 'b' ` + segments,
			`direct beta 1 70/70 'c'`, `direct beta 1 14/14 'd'`,
		}},
		"snap length": {capture.Config{SnapLength: 60}, []string{
			`uplink queue 0 2 60/60 'a'`, `uplink queue 0 2 60/100 'b' ` + segments,
			`direct beta 1 60/70 'c'`, `direct beta 1 14/14 'd'`,
		}},
		"paths":  {capture.Config{Paths: "direct *"}, []string{`direct beta 1 70/70 'c'`, `direct beta 1 14/14 'd'`}},
		"filter": {capture.Config{Filter: isA}, []string{`uplink queue 0 2 60/60 'a'`}},
		"frames": {capture.Config{Frames: 2}, []string{
			`uplink queue 0 2 60/60 'a'`, `uplink queue 0 2 100/100 'b' ` + segments,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var p capture.Point
			up, direct := p.Path("uplink queue 0", "through x"), p.Path("direct beta", "")
			up.Sent(reads(frame(60, 'x'))) // no capture is running yet
			x := started(t, &p, c.cfg)
			dropped := vnet.ReadOp{Frame: frame(60, 'y'), Err: vnet.ErrTooLong}
			up.Sent(append(reads(frame(60, 'a')), dropped, reads(super(100, 'b'))[0]))
			direct.Received(writes(frame(70, 'c'), make([]byte, vnet.MinFrame-1), frame(14, 'd')))
			x.End()
			up.Sent(reads(frame(60, 'z')))
			if running := p.Status(); len(running) != 0 {
				t.Errorf("after the end %+v is running", running)
			}
			expect(t, rest(t, x), c.want...)
			if n := x.Status().Frames; n != uint64(len(c.want)) {
				t.Errorf("%d frames, want %d", n, len(c.want))
			}
		})
	}
}

// TestReaderIsNeverWaitedFor sends more than fits into the buffer while nobody reads: frames are
// dropped and counted.
func TestReaderIsNeverWaitedFor(t *testing.T) {
	var p capture.Point
	path := p.Path("a", "")
	c := started(t, &p, capture.Config{Buffer: capture.MinBuffer, Frames: 1 << 20})
	const n = 200
	large := reads(frame(capture.MaxSnapLength, 'l'))
	for range n {
		path.Sent(large)
	}
	s := c.Status()
	if s.Frames != n || s.Dropped != n-1 {
		t.Errorf("%d frames, %d dropped, want %d and %d", s.Frames, s.Dropped, n, n-1)
	}
	// One half of the buffer is written while the other one fills.
	var file bytes.Buffer
	if err := c.Copy(t.Context(), writerFunc(func(b []byte) (int, error) {
		if len(b) > capture.MaxSnapLength && c.Status().Frames == n {
			path.Sent(large)
			c.End()
		}
		return file.Write(b)
	}), "", ""); err != nil {
		t.Fatal(err)
	}
	lines, paths := parse(t, file.Bytes())
	expect(t, lines, `a 2 65553/65553 'l'`, `a 2 65553/65553 'l'`)
	if len(paths) != 1 || paths[0].Statistics.PacketsReceived != n+1 || paths[0].Statistics.PacketsDropped != n-1 {
		t.Errorf("paths %+v, want %d frames, %d dropped", paths, n+1, n-1)
	}
}

// TestStatistics expects an interface for a path of which each frame was dropped, and for a capture
// without frames: tcpdump reads no file without one.
func TestStatistics(t *testing.T) {
	var p capture.Point
	c := started(t, &p, capture.Config{Buffer: capture.MinBuffer, Paths: "[ab]"})
	a, b := p.Path("a", ""), p.Path("b", "through x")
	a.Sent(reads(frame(capture.MaxSnapLength, 1)))
	b.Sent(reads(frame(capture.MaxSnapLength, 1)))
	p.Path("c", "").Sent(reads(frame(60, 1)))
	none := started(t, &p, capture.Config{})
	var files [2]bytes.Buffer
	for i, c := range []*capture.Capture{c, none} {
		c.End()
		if err := c.Copy(t.Context(), &files[i], "", ""); err != nil {
			t.Fatal(err)
		}
	}
	lines, paths := parse(t, files[0].Bytes())
	expect(t, lines, `a 2 65553/65553 '\x01'`)
	var got []string
	for _, i := range paths {
		n := i.Statistics
		got = append(got, fmt.Sprintf("%s: %s: %d %d", i.Name, i.Description, n.PacketsReceived, n.PacketsDropped))
	}
	expect(t, got, "a: : 1 0", "b: through x: 1 1")
	if lines, paths := parse(t, files[1].Bytes()); len(lines) > 0 || len(paths) != 1 || paths[0].Name != "none" {
		t.Errorf("without frames there are %q, %+v", lines, paths)
	}
}

// TestSamePath has two successive sessions with the same path, which is listed once, and a third
// one with another.
func TestSamePath(t *testing.T) {
	var p capture.Point
	c := started(t, &p, capture.Config{})
	for _, unit := range []string{"one", "one", "two"} {
		p.Path("uplink queue 0", "through "+unit).Sent(reads(frame(60, 1)))
	}
	c.End()
	var file bytes.Buffer
	if err := c.Copy(t.Context(), &file, "", ""); err != nil {
		t.Fatal(err)
	}
	_, all := parse(t, file.Bytes())
	if len(all) != 2 || all[0].Statistics.PacketsReceived != 2 || all[1].Statistics.PacketsReceived != 1 ||
		all[1].Description != "through two" {
		t.Errorf("paths: %+v", all)
	}
}

func TestSeveral(t *testing.T) {
	var p capture.Point
	path := p.Path("a", "")
	var all []*capture.Capture
	for i := range capture.MaxCaptures {
		all = append(all, started(t, &p, capture.Config{Name: fmt.Sprint(i)}))
		path.Sent(reads(frame(60, byte('a'+i))))
	}
	if _, err := p.Start(capture.Config{}); !errors.Is(err, capture.ErrTooMany) {
		t.Errorf("one more: %v", err)
	}
	if err := p.End("1"); err != nil {
		t.Error(err)
	}
	if err := p.End("1"); !errors.Is(err, capture.ErrUnknown) {
		t.Errorf("an end of what is not there: %v", err)
	}
	path.Sent(reads(frame(60, 'z')))
	all[2].End()
	expect(t, rest(t, all[1]), `a 2 60/60 'b'`, `a 2 60/60 'c'`, `a 2 60/60 'd'`)
	expect(t, rest(t, all[2]), `a 2 60/60 'c'`, `a 2 60/60 'd'`, `a 2 60/60 'z'`)
	if n := len(p.Status()); n != 2 {
		t.Errorf("%d captures are running, want 2", n)
	}
}

// TestConcurrent has many paths, captures that start and end, and one that must get all frames.
func TestConcurrent(t *testing.T) {
	var p capture.Point
	whole := started(t, &p, capture.Config{Buffer: 64 << 20})
	const paths, batches = 4, 500
	var wg sync.WaitGroup
	for i := range paths {
		path := p.Path(fmt.Sprint(i), "")
		wg.Go(func() {
			for range batches {
				path.Sent(reads(frame(60, 1), frame(200, 2)))
			}
		})
		wg.Go(func() {
			for range batches {
				path.Received(writes(frame(90, 3)))
			}
		})
	}
	wg.Go(func() {
		for range 50 {
			c, err := p.Start(capture.Config{Frames: 10})
			if err != nil {
				t.Error(err)
				return
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			_ = c.Copy(ctx, io.Discard, "", "")
			cancel()
			c.End()
			_ = p.Status()
		}
	})
	read := make(chan int)
	go func() { read <- len(rest(t, whole)) }()
	wg.Wait()
	whole.End()
	if n := <-read; n != 3*paths*batches {
		t.Errorf("%d frames, want %d; %+v", n, 3*paths*batches, whole.Status())
	}
}

// TestCopy expects a copy to begin and go on at once, and to end with its context, its writer and
// the capture.
func TestCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p capture.Point
		path := p.Path("a", "")
		ended := make(chan error)
		copied := func(ctx context.Context, c *capture.Capture, w io.Writer) {
			go func() { ended <- c.Copy(ctx, w, "", "") }()
			synctest.Wait()
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("gone")
		copied(ctx, started(t, &p, capture.Config{}), io.Discard)
		cancel(gone)
		if err := <-ended; !errors.Is(err, gone) {
			t.Errorf("a reader that is gone: %v", err)
		}
		c, size := started(t, &p, capture.Config{}), 0
		copied(t.Context(), c, writerFunc(func(b []byte) (int, error) { size += len(b); return len(b), nil }))
		for range 2 {
			before := size
			if path.Received(writes(frame(60, 1))); before == 0 {
				t.Error("nothing is written at once")
			}
			if synctest.Wait(); size < before+60 {
				t.Errorf("%d bytes are written of a frame", size-before)
			}
		}
		c.End()
		if err := <-ended; err != nil {
			t.Errorf("a capture that has ended: %v", err)
		}
		for n := range 3 {
			c, at := started(t, &p, capture.Config{}), 0
			path.Received(writes(frame(60, 1)))
			c.End()
			copied(t.Context(), c, writerFunc(func(b []byte) (int, error) {
				if at++; at > n {
					return 0, gone
				}
				return len(b), nil
			}))
			if err := <-ended; !errors.Is(err, gone) {
				t.Errorf("write %d fails: %v", n, err)
			}
		}
	})
}

type writerFunc func([]byte) (int, error)

// Write implements io.Writer.
func (w writerFunc) Write(b []byte) (int, error) { return w(b) }

func TestBadConfig(t *testing.T) {
	var p capture.Point
	for name, cfg := range map[string]capture.Config{
		"snap length":      {SnapLength: -1},
		"long snap length": {SnapLength: capture.MaxSnapLength + 1},
		"small buffer":     {Buffer: capture.MinBuffer - 1},
		"large buffer":     {Buffer: capture.MaxBuffer + 1},
		"pattern":          {Paths: "["},
		"no instruction":   {Filter: []bpf.RawInstruction{{Op: 0xffff}}},
		"no program":       {Filter: isA[:2]},
	} {
		if _, err := p.Start(cfg); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	var none *capture.Point
	none.Path("a", "").Sent(reads(frame(60, 1)))
}

// BenchmarkPath measures a path without a capture, with one whose buffer is full, and with one that
// is read.
func BenchmarkPath(b *testing.B) {
	ops := reads(frame(1500, 1))
	b.Run("off", func(b *testing.B) {
		var p capture.Point
		path := p.Path("a", "")
		for b.Loop() {
			path.Sent(ops)
		}
	})
	b.Run("full", func(b *testing.B) {
		var p capture.Point
		path := p.Path("a", "")
		started(b, &p, capture.Config{Buffer: capture.MinBuffer})
		for b.Loop() {
			path.Sent(ops)
		}
	})
	b.Run("on", func(b *testing.B) {
		var p capture.Point
		path := p.Path("a", "")
		c := started(b, &p, capture.Config{})
		go func() { _ = c.Copy(b.Context(), io.Discard, "", "") }()
		for b.Loop() {
			path.Sent(ops)
		}
		s := c.Status()
		b.ReportMetric(float64(s.Dropped)/float64(s.Frames), "dropped/frame")
		c.End()
	})
}
