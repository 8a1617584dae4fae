package vhostuser_test

import (
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/internal/epoll"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/tap"
	"github.com/splitnic/splitnic/vhostuser"
	"github.com/splitnic/splitnic/vnet"
)

// endless is a port that always has the same frame, once it is told to, and takes all that
// it gets.
type endless struct {
	event *epoll.Event
	frame []byte
	on    atomic.Bool
	got   atomic.Int64
}

func newEndless(b *testing.B, size int) *endless {
	e, err := epoll.NewEvent()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { e.Close() })
	return &endless{event: e, frame: frame(1, size)}
}

func (p *endless) FD() int { return p.event.FD() }

func (p *endless) ReadFrames(ops []vnet.ReadOp) int {
	if !p.on.Load() {
		ops[0].Frame, ops[0].Err = nil, unix.EAGAIN
		return 1
	}
	for i := range ops {
		ops[i].Frame, ops[i].Err = ops[i].Slot[:copy(ops[i].Slot, p.frame)], nil
	}
	return len(ops)
}

func (p *endless) WriteFrames(ops []vnet.WriteOp) int {
	for i := range ops {
		ops[i].Err = nil
	}
	p.got.Add(int64(len(ops)))
	return len(ops)
}

// between connects a port and an endless one by a data channel over the fabric in memory.
func between(b *testing.B, port messaging.Port, far *endless) *messaging.Conn {
	n := fabrictest.New()
	var conns []*messaging.Conn
	for _, name := range []string{"near", "far"} {
		d := n.Device(name)
		b.Cleanup(func() { d.Close() })
		c, err := messaging.New(messaging.Config{
			Device: d, Mode: protocol.ModeImm, MTU: 1500, PeerTimeout: time.Minute,
			Pools: messaging.DefaultPools(protocol.ModeImm, 1500),
		})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { c.Close() })
		conns = append(conns, c)
	}
	for i, c := range conns {
		if err := c.Connect(conns[1-i].Addresses(), conns[1-i].ControlReceives()); err != nil {
			b.Fatal(err)
		}
	}
	for i, c := range conns {
		if err := c.Start([]messaging.Port{[]messaging.Port{port, far}[i]}); err != nil {
			b.Fatal(err)
		}
	}
	return conns[0]
}

// count waits for b.N events, of which done says how many there were.
func count(b *testing.B, done func() int64) {
	b.Helper()
	from := done()
	b.ResetTimer()
	for done()-from < int64(b.N) {
		time.Sleep(time.Millisecond)
	}
	b.StopTimer()
	b.ReportMetric(float64(done()-from)/b.Elapsed().Seconds()/1e6, "Mframes/s")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkPort moves frames of 64 bytes between the layer, over the fabric in memory, and
// DPDK's testpmd, and beside it to a TAP device that is up.
func BenchmarkPort(b *testing.B) {
	port := func(b *testing.B, mode ...string) *vhostuser.Device {
		a := vhostuser.Address{Path: filepath.Join(b.TempDir(), "s")}
		d, err := vhostuser.Open(vhostuser.Config{Address: a, Pairs: 1, Offloads: vnet.AllOffloads, Log: quiet})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { d.Close() })
		testenv.Testpmd(b, "net_virtio_user0,queue_size=1024,path="+a.Path, mode...)
		waitUp(b, d, true)
		return d
	}
	const size = vnet.HdrLen + 64
	b.Run("testpmd to layer", func(b *testing.B) {
		far := newEndless(b, size)
		between(b, port(b, "--forward-mode=txonly", "--txpkts=64").Queues()[0], far)
		count(b, far.got.Load)
	})
	b.Run("layer to testpmd", func(b *testing.B) {
		d, far := port(b, "--forward-mode=rxonly"), newEndless(b, size)
		between(b, d.Queues()[0], far)
		far.on.Store(true)
		far.event.Set()
		count(b, func() int64 { return int64(d.Status().WrittenFrames) })
	})
	b.Run("layer to TAP", func(b *testing.B) {
		testenv.NeedTUN(b)
		dev, err := tap.Open(tap.Config{Name: "sn0", NetNS: testenv.NetNS(b), Offloads: vnet.AllOffloads})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { dev.Close() })
		if err := dev.Up(); err != nil {
			b.Fatal(err)
		}
		if err := dev.SetCarrier(true); err != nil {
			b.Fatal(err)
		}
		far := newEndless(b, size)
		c := between(b, dev.Queues()[0], far)
		far.on.Store(true)
		far.event.Set()
		count(b, func() int64 { return int64(c.Stats().Channels[0].RxFrames) })
	})
}
