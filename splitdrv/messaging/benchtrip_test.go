package messaging_test

import (
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/internal/spin"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/messaging/cq"
	"github.com/splitnic/splitnic/splitdrv/messaging/porttest"
)

// tripPort returns each frame that is written to it, until a number of frames was written.
type tripPort struct {
	fd   int // eventfd(2); readable while there is a frame
	got  [8]byte
	one  [8]byte
	data []byte
	left atomic.Int64 // frames to write until done is closed
	have atomic.Int64 // frames to read: a read without a frame makes no system call
	done chan struct{}

	times []time.Duration // times between writes; nil: do not measure
	last  time.Time       // of the last write
}

// FD implements messaging.Port.
func (p *tripPort) FD() int { return p.fd }

// WriteFD implements messaging.WriteFDer.
func (p *tripPort) WriteFD() int { return p.fd }

// ReadFrame implements messaging.Port.
func (p *tripPort) ReadFrame(slot []byte) ([]byte, error) {
	if p.have.Load() == 0 {
		return nil, errBenchAgain
	}
	if _, err := unix.Read(p.fd, p.got[:]); err != nil {
		return nil, errBenchAgain
	}
	p.have.Add(-1)
	return slot[:copy(slot, p.data)], nil
}

// WriteFrame implements messaging.Port.
func (p *tripPort) WriteFrame([]byte) error {
	if p.times != nil {
		now := time.Now()
		if !p.last.IsZero() {
			p.times = append(p.times, now.Sub(p.last))
		}
		p.last = now
	}
	if p.left.Add(-1) == 0 {
		close(p.done)
		return nil
	}
	return p.give()
}

// give adds a frame to read.
func (p *tripPort) give() error {
	p.have.Add(1)
	_, err := unix.Write(p.fd, p.one[:])
	return err
}

// trips sends one frame of 64 bytes to and fro b.N times between two endpoints configured by
// configure. It returns their Conns and ports.
func trips(b *testing.B, timed bool, configure func(*messaging.Config)) (conns [2]*messaging.Conn, ports [2]*tripPort) {
	n := fabrictest.New()
	for i, name := range []string{"a", "b"} {
		dev := n.Device(name)
		b.Cleanup(func() { dev.Close() })
		fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { unix.Close(fd) })
		ports[i] = &tripPort{fd: fd, one: [8]byte{1}, data: frame(1, 64, 1500), done: make(chan struct{})}
		cfg := messaging.Config{Device: dev}
		configure(&cfg)
		conns[i], err = messaging.New(patient(cfg))
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { conns[i].Close() })
	}
	for i, conn := range conns {
		if err := conn.Connect(conns[1-i].Addresses(), conns[1-i].ControlReceives()); err != nil {
			b.Fatal(err)
		}
	}
	ports[0].left.Store(int64(b.N))
	ports[1].left.Store(1 << 62)
	if timed {
		ports[0].times = make([]time.Duration, 0, b.N)
	}
	for i, conn := range conns {
		if err := conn.Start([]messaging.Port{porttest.Batched{Single: ports[i]}}); err != nil {
			b.Fatal(err)
		}
	}
	b.ResetTimer()
	if err := ports[0].give(); err != nil {
		b.Fatal(err)
	}
	<-ports[0].done
	b.StopTimer()
	return conns, ports
}

// BenchmarkRoundTrip sends one frame of 64 bytes to and fro, with receivers that sleep, that
// poll for up to 100 µs, and that poll adaptively.
func BenchmarkRoundTrip(b *testing.B) {
	for _, c := range []struct {
		name     string
		spin     time.Duration
		adaptive bool
	}{
		{"sleep", 0, false}, {"poll", cq.AdaptiveSpin, false}, {"adaptive", cq.AdaptiveSpin, true},
	} {
		b.Run(c.name, func(b *testing.B) {
			limit := spin.NewLimit()
			conns, _ := trips(b, false, func(cfg *messaging.Config) {
				cfg.Spin, cfg.SpinAdaptive, cfg.SpinLimit = c.spin, c.adaptive, limit
			})
			var wakeups uint64
			for _, conn := range conns {
				for _, w := range conn.Stats().Handlers[1].Workers {
					if w.Role == cq.RoleReceiver {
						wakeups += w.Wakeups
					}
				}
			}
			b.ReportMetric(float64(wakeups)/float64(b.N), "wakeups/op")
		})
	}
}

// BenchmarkPolledTrip sends the same frame to and fro between polling workers, and reports
// the percentiles of the round trips.
func BenchmarkPolledTrip(b *testing.B) {
	_, ports := trips(b, true, func(cfg *messaging.Config) { cfg.Poll = true })
	reportTrips(b, ports[0].times)
}

// BenchmarkBareTrip has two threads pass a number to and fro in memory. Each thread first
// works as long as the messaging layer would. The percentiles show what the machine itself
// adds to those of BenchmarkPolledTrip.
func BenchmarkBareTrip(b *testing.B) {
	const side = 3 * time.Microsecond
	work := func() {
		for begin := time.Now(); time.Since(begin) < side; {
		}
	}
	var ping, pong atomic.Int64
	go func() {
		runtime.LockOSThread()
		for n := int64(1); n <= int64(b.N); n++ {
			for ping.Load() != n {
			}
			work()
			pong.Store(n)
		}
	}()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	times := make([]time.Duration, b.N)
	b.ResetTimer()
	last := time.Now()
	for i := range times {
		n := int64(i) + 1
		ping.Store(n)
		for pong.Load() != n {
		}
		work()
		now := time.Now()
		times[i], last = now.Sub(last), now
	}
	b.StopTimer()
	reportTrips(b, times)
}

// reportTrips reports the percentiles of round trips.
func reportTrips(b *testing.B, times []time.Duration) {
	if len(times) == 0 {
		return
	}
	slices.Sort(times)
	for _, p := range []struct {
		name string
		of   float64
	}{{"p50-µs", 0.5}, {"p99-µs", 0.99}, {"p99.9-µs", 0.999}, {"p100-µs", 1}} {
		b.ReportMetric(float64(times[min(int(p.of*float64(len(times))), len(times)-1)].Nanoseconds())/1000, p.name)
	}
}
