package messaging_test

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/capture"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// benchPort is a port with a number of frames to read, all with the same beginning, which
// counts the frames written to it. It makes no system calls for frames, so that benchmarks
// measure the messaging layer and the memory fabric below it.
type benchPort struct {
	fd    int // eventfd(2); readable while there are frames
	got   [8]byte
	begin []byte // of each frame
	size  int
	left  atomic.Int64
	await atomic.Int64 // frames to write until done is closed
	done  chan struct{}
}

var errBenchAgain error = unix.EAGAIN

func newBenchPort(b *testing.B, size int) *benchPort {
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { unix.Close(fd) })
	return &benchPort{fd: fd, begin: frame(1, size, 1500)[:min(size, 128)], size: size, done: make(chan struct{})}
}

// FD implements messaging.Port.
func (p *benchPort) FD() int { return p.fd }

// WriteFD implements messaging.WriteFDer.
func (p *benchPort) WriteFD() int { return p.fd }

// ReadFrame implements messaging.Port.
func (p *benchPort) ReadFrame(slot []byte) ([]byte, error) {
	if p.left.Load() == 0 {
		_, _ = unix.Read(p.fd, p.got[:])
		// Frames may have been added since the first check.
		if p.left.Load() == 0 {
			return nil, errBenchAgain
		}
	}
	p.left.Add(-1)
	copy(slot, p.begin)
	return slot[:p.size], nil
}

// WriteFrame implements messaging.Port.
func (p *benchPort) WriteFrame(frame []byte) error {
	if len(frame) != p.size {
		return unix.EINVAL
	}
	if p.await.Add(-1) == 0 {
		close(p.done)
	}
	return nil
}

// BenchmarkFrames sends frames from one endpoint to the other.
func BenchmarkFrames(b *testing.B) {
	for _, mode := range protocol.Modes() {
		for _, size := range []int{64, 1500, 65535} {
			b.Run(fmt.Sprintf("%s/%d", mode, size), func(b *testing.B) {
				benchFrames(b, messaging.Config{Mode: mode}, size, nil)
			})
		}
	}
}

// BenchmarkCapturedFrames sends frames between endpoints with a capture point. With off, no
// capture is running; with on, one captures all frames, and they are read.
func BenchmarkCapturedFrames(b *testing.B) {
	for _, size := range []int{64, 1500, 65535} {
		b.Run(fmt.Sprintf("off/%d", size), func(b *testing.B) {
			benchFrames(b, messaging.Config{}, size, new(capture.Point))
		})
		b.Run(fmt.Sprintf("on/%d", size), func(b *testing.B) {
			var p capture.Point
			c, err := p.Start(capture.Config{})
			if err != nil {
				b.Fatal(err)
			}
			go func() { _ = c.Copy(b.Context(), io.Discard, "", "") }()
			benchFrames(b, messaging.Config{}, size, &p)
			s := c.Status()
			b.ReportMetric(100*float64(s.Dropped)/float64(s.Frames), "%dropped")
			c.End()
		})
	}
}

// BenchmarkPackedFrames sends frames in packs: gathered by the device from their slots, or
// copied behind each other.
func BenchmarkPackedFrames(b *testing.B) {
	for _, size := range []int{64, 128, 256, 512, 1024, 1500} {
		b.Run(fmt.Sprintf("gather/%d", size), func(b *testing.B) {
			benchFrames(b, messaging.Config{PackCopy: -1}, size, nil)
		})
		b.Run(fmt.Sprintf("copy/%d", size), func(b *testing.B) {
			benchFrames(b, messaging.Config{PackCopy: size}, size, nil)
		})
	}
}

func benchFrames(b *testing.B, cfg messaging.Config, size int, point *capture.Point) {
	n := fabrictest.New()
	ports := [2]*benchPort{newBenchPort(b, size), newBenchPort(b, size)}
	var conns [2]*messaging.Conn
	for i, name := range []string{"a", "b"} {
		dev := n.Device(name)
		b.Cleanup(func() { dev.Close() })
		cfg := patient(cfg)
		cfg.Device, cfg.Capture = dev, func(int) *capture.Path { return point.Path(name, "") }
		c, err := messaging.New(cfg)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { c.Close() })
		conns[i] = c
	}
	for i, c := range conns {
		peer := conns[1-i]
		if err := c.Connect(peer.Addresses(), peer.ControlReceives()); err != nil {
			b.Fatal(err)
		}
	}
	for i, c := range conns {
		if err := c.Start([]messaging.Port{ports[i]}); err != nil {
			b.Fatal(err)
		}
	}
	// A frame that fits none of the pools that have been lent is dropped: wait for all pools.
	for late := time.Now().Add(time.Minute); len(conns[0].Stats().Channels[0].RemotePools) < len(
		messaging.DefaultPools(cmp.Or(cfg.Mode, protocol.ModeImm), 1500)); {
		if time.Now().After(late) {
			b.Fatal("the peer does not lend its pools")
		}
		runtime.Gosched()
	}
	b.SetBytes(int64(size))
	b.ReportAllocs()
	ports[1].await.Store(int64(b.N))
	ports[0].left.Store(int64(b.N))
	b.ResetTimer()
	if _, err := unix.Write(ports[0].fd, []byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil {
		b.Fatal(err)
	}
	var err error
	select {
	case <-ports[1].done:
	case <-conns[0].Done():
		err = conns[0].Err()
	case <-conns[1].Done():
		err = conns[1].Err()
	case <-time.After(testenv.Patience):
		err = errors.New("not all frames have arrived within a minute")
	}
	b.StopTimer()
	if err != nil {
		b.Fatalf("%v; %d of %d frames are missing", err, ports[1].await.Load(), b.N)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "frames/s")
}
