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

// rest returns the remaining frames of an ended capture, a line for each.
func rest(t testing.TB, c *capture.Capture) (lines []string) {
	t.Helper()
	for {
		frames, err := c.Next(t.Context())
		if errors.Is(err, io.EOF) {
			return lines
		}
		if err != nil {
			t.Fatal(err)
		}
		for f := range frames.All() {
			if time.Since(f.Time) > time.Hour {
				t.Errorf("a frame of %v", f.Time)
			}
			lines = append(lines, fmt.Sprintf("%s %d %d/%d %q %d", c.Paths()[f.Path].Name, f.Direction, len(f.Data), f.Length,
				f.Data[len(f.Data)-1], f.Header.GSOSize))
		}
	}
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
	for n := range byte(2) {
		drops.Dropped(frame(60, n), func() string { asked++; return fmt.Sprintf("reason %d", n) })
	}
	drops.Received(writes(frame(60, 2)))
	c.End()
	other.End()
	frames, err := c.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for f := range frames.All() {
		got = append(got, fmt.Sprintf("%d %d/%d %d %q", f.Direction, len(f.Data), f.Length, f.Data[19], f.Comment))
	}
	expect(t, got, `1 20/60 0 "reason 0"`, `1 20/60 1 "reason 1"`, `1 20/60 2 ""`)
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
			`uplink queue 0 2 60/60 'a' 0`, `uplink queue 0 2 100/100 'b' 1448`,
			`direct beta 1 70/70 'c' 0`, `direct beta 1 14/14 'd' 0`,
		}},
		"snap length": {capture.Config{SnapLength: 60}, []string{
			`uplink queue 0 2 60/60 'a' 0`, `uplink queue 0 2 60/100 'b' 1448`,
			`direct beta 1 60/70 'c' 0`, `direct beta 1 14/14 'd' 0`,
		}},
		"paths":  {capture.Config{Paths: "direct *"}, []string{`direct beta 1 70/70 'c' 0`, `direct beta 1 14/14 'd' 0`}},
		"filter": {capture.Config{Filter: isA}, []string{`uplink queue 0 2 60/60 'a' 0`}},
		"frames": {capture.Config{Frames: 2}, []string{`uplink queue 0 2 60/60 'a' 0`, `uplink queue 0 2 100/100 'b' 1448`}},
	} {
		t.Run(name, func(t *testing.T) {
			var p capture.Point
			up, direct := p.Path("uplink queue 0", "through x"), p.Path("direct beta", "")
			up.Sent(reads(frame(60, 'x'))) // no capture is running yet
			x := started(t, &p, c.cfg)
			large := frame(100, 'b')
			(&vnet.Header{GSOSize: 1448}).Encode(large)
			dropped := vnet.ReadOp{Frame: frame(60, 'y'), Err: vnet.ErrTooLong}
			up.Sent(append(reads(frame(60, 'a')), dropped, reads(large)[0]))
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
	// One half of the buffer is read while the other one fills.
	if frames, err := c.Next(t.Context()); err != nil || len(frames) < capture.MaxSnapLength {
		t.Fatal(len(frames), err)
	}
	path.Sent(large)
	c.End()
	expect(t, rest(t, c), `a 2 65553/65553 'l' 0`)
	if s := c.Status(); s.Dropped != n-1 {
		t.Errorf("%d dropped when there was room", s.Dropped-n+1)
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
	all := c.Paths()
	if len(all) != 2 || all[0].Frames != 2 || all[1].Frames != 1 || all[1].Description != "through two" {
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
	expect(t, rest(t, all[1]), `a 2 60/60 'b' 0`, `a 2 60/60 'c' 0`, `a 2 60/60 'd' 0`)
	expect(t, rest(t, all[2]), `a 2 60/60 'c' 0`, `a 2 60/60 'd' 0`, `a 2 60/60 'z' 0`)
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
			_, _ = c.Next(ctx)
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

func TestNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p capture.Point
		path := p.Path("a", "")
		c := started(t, &p, capture.Config{})
		waits := make(chan error)
		next := func(ctx context.Context) {
			go func() {
				_, err := c.Next(ctx)
				waits <- err
			}()
			synctest.Wait()
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("gone")
		next(ctx)
		cancel(gone)
		if err := <-waits; !errors.Is(err, gone) {
			t.Errorf("Next: %v, want that the reader is gone", err)
		}
		next(t.Context())
		path.Received(writes(frame(60, 1)))
		if err := <-waits; err != nil {
			t.Error(err)
		}
		next(t.Context())
		c.End()
		if err := <-waits; !errors.Is(err, io.EOF) {
			t.Errorf("Next after the end: %v", err)
		}
	})
}

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
		go func() {
			for {
				if _, err := c.Next(context.Background()); err != nil {
					return
				}
			}
		}()
		for b.Loop() {
			path.Sent(ops)
		}
		s := c.Status()
		b.ReportMetric(float64(s.Dropped)/float64(s.Frames), "dropped/frame")
		c.End()
	})
}
