package vhostuser

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/messaging/porttest"
	"github.com/splitnic/splitnic/vnet"
)

// sink is a port that counts the frames that are written to it.
type sink struct {
	messaging.Port
	got atomic.Uint64
}

func (s *sink) WriteFrames(ops []vnet.WriteOp) int {
	for i := range ops {
		ops[i].Err = nil
	}
	s.got.Add(uint64(len(ops)))
	return len(ops)
}

// transmitting makes a ring whose frames go through a data channel to a sink.
func transmitting(b *testing.B, budget *messaging.Budget) (g *guest, kick int, far *sink) {
	g = newGuest(b, modern|featEventIdx, 1, 1)
	g.d.lender.rings = []*vring{{}, g.v}
	g.d.lender.lend(g.v.ring.base().mem.shared)
	q, err := newQueue(g.d.lender)
	if err == nil {
		kick, err = unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	}
	if err == nil {
		err = q.in.hear(kick)
	}
	if err != nil {
		b.Fatal(err)
	}
	q.reads.Store(&[]*vring{g.v})
	port, _ := porttest.New(b, 1<<16)
	far = &sink{Port: porttest.Batched{Single: port}}
	n := fabrictest.New()
	var conns []*messaging.Conn
	for _, name := range []string{"near", "far"} {
		d := n.Device(name)
		c, err := messaging.New(messaging.Config{
			Device: d, MTU: 65000, PeerTimeout: time.Minute, ZeroCopy: budget,
			Pools: messaging.DefaultPools(protocol.ModeImm, 9000),
		})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { c.Close(); d.Close() })
		conns = append(conns, c)
	}
	for i, c := range conns {
		if err := c.Connect(conns[1-i].Addresses(), conns[1-i].ControlReceives()); err != nil {
			b.Fatal(err)
		}
	}
	if err := errors.Join(conns[0].Start([]messaging.Port{q}), conns[1].Start([]messaging.Port{far})); err != nil {
		b.Fatal(err)
	}
	testenv.Eventually(b, func() bool { return budget == nil || g.d.Status().Registered > 0 }, "memory is registered")
	return g, kick, far
}

// BenchmarkTransmit sends frames of a front end, copied or lent, through a data channel over the
// fabric in memory to a sink. The processor time includes the time of the front end.
func BenchmarkTransmit(b *testing.B) {
	for _, size := range []int{lentFrom, 9014, lendFrom, 32768, 60000} {
		for _, how := range []string{"copied", "lent"} {
			b.Run(fmt.Sprint(size, " ", how), func(b *testing.B) {
				var budget *messaging.Budget
				if how == "lent" {
					budget = messaging.NewBudget(1 << 30)
				}
				g, kick, far := transmitting(b, budget)
				const ahead = 32
				var before, after unix.Rusage
				_ = unix.Getrusage(unix.RUSAGE_SELF, &before)
				b.SetBytes(int64(size))
				b.ResetTimer()
				for sent, back := 0, 0; back < b.N; runtime.Gosched() {
					old := g.avail
					for ; sent < b.N && sent-back < ahead; sent++ {
						g.add([]buffer{g.alloc(12 + size)}, false)
					}
					new(common).barrier()
					if g.avail != old && g.wantsKick(old) {
						_, _ = unix.Write(kick, one)
					}
					for _, ok := g.used(); ok; _, ok = g.used() {
						back++
					}
				}
				for far.got.Load() < uint64(b.N) {
					runtime.Gosched()
				}
				b.StopTimer()
				_ = unix.Getrusage(unix.RUSAGE_SELF, &after)
				cpu := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
				b.ReportMetric(float64(cpu)/float64(b.N), "cpu-ns/op")
			})
		}
	}
}
