package messaging_test

import (
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/internal/spin"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/messaging/porttest"
)

// tripPort has one frame to read for each that was written, until it has had enough.
type tripPort struct {
	fd   int // eventfd(2); readable while there is a frame
	got  [8]byte
	one  [8]byte
	data []byte
	left atomic.Int64 // frames to be written
	done chan struct{}
}

// FD implements messaging.Port.
func (p *tripPort) FD() int { return p.fd }

// WriteFD implements messaging.WriteFDer.
func (p *tripPort) WriteFD() int { return p.fd }

// ReadFrame implements messaging.Port.
func (p *tripPort) ReadFrame(slot []byte) ([]byte, error) {
	if _, err := unix.Read(p.fd, p.got[:]); err != nil {
		return nil, errBenchAgain
	}
	return slot[:copy(slot, p.data)], nil
}

// WriteFrame implements messaging.Port.
func (p *tripPort) WriteFrame([]byte) error {
	if p.left.Add(-1) == 0 {
		close(p.done)
		return nil
	}
	_, err := unix.Write(p.fd, p.one[:])
	return err
}

// BenchmarkRoundTrip has one frame of 64 bytes go to and fro, with receivers that sleep, that
// poll for up to 100 µs, and that do so adaptively.
func BenchmarkRoundTrip(b *testing.B) {
	for _, c := range []struct {
		name     string
		spin     time.Duration
		adaptive bool
	}{
		{"sleep", 0, false}, {"poll", messaging.AdaptiveSpin, false}, {"adaptive", messaging.AdaptiveSpin, true},
	} {
		b.Run(c.name, func(b *testing.B) {
			n := fabrictest.New()
			limit := spin.NewLimit()
			var conns [2]*messaging.Conn
			var ports [2]*tripPort
			for i, name := range []string{"a", "b"} {
				dev := n.Device(name)
				b.Cleanup(func() { dev.Close() })
				fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
				if err != nil {
					b.Fatal(err)
				}
				b.Cleanup(func() { unix.Close(fd) })
				ports[i] = &tripPort{fd: fd, one: [8]byte{1}, data: frame(1, 64, 1500), done: make(chan struct{})}
				conns[i], err = messaging.New(patient(messaging.Config{
					Device: dev, Spin: c.spin, SpinAdaptive: c.adaptive, SpinLimit: limit,
				}))
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
			for i, conn := range conns {
				if err := conn.Start([]messaging.Port{porttest.Batched{Single: ports[i]}}); err != nil {
					b.Fatal(err)
				}
			}
			b.ResetTimer()
			if _, err := unix.Write(ports[0].fd, ports[0].one[:]); err != nil {
				b.Fatal(err)
			}
			<-ports[0].done
			b.StopTimer()
			var wakeups uint64
			for _, conn := range conns {
				for _, w := range conn.Stats().Handlers[1].Workers {
					if w.Role == messaging.RoleReceiver {
						wakeups += w.Wakeups
					}
				}
			}
			b.ReportMetric(float64(wakeups)/float64(b.N), "wakeups/op")
		})
	}
}
