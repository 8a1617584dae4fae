package conform

import (
	"errors"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/fabric"
)

// A moderated queue loses no completion: its event is delayed, at most until the period is
// over. A device without moderation returns an error that says so.
func testModeration(r *fixture) {
	r.connect(fabric.RC)
	m, ok := r.b.recvCQ.(fabric.Moderator)
	if limits := r.b.dev.Limits(); !limits.Moderation {
		if !ok {
			return
		}
		if err := m.Moderate(16, 100*time.Microsecond); !errors.Is(err, fabric.ErrUnsupported) {
			r.Fatalf("moderation that the device does not have: %v", err)
		}
	} else if !ok {
		r.Fatalf("%s has moderation, but its queues are no Moderators", r.b.dev.Name())
	} else {
		r.check(m.Moderate(16, 100*time.Microsecond))
	}
	for _, bad := range []struct {
		count  int
		period time.Duration
	}{{-1, 0}, {1 << 16, 0}, {1, -time.Microsecond}, {1, 65536 * time.Microsecond}, {1, 1500}, {0, time.Microsecond}} {
		if err := m.Moderate(bad.count, bad.period); !errors.Is(err, unix.EINVAL) {
			r.Fatalf("an event for %d completions or after %v: %v", bad.count, bad.period, err)
		}
	}
	for i := range uint64(20) { // each sleeps until its event has come
		r.deliver(r.a, r.b, i, write(fabric.OpWriteImm, i, r.a, r.b, 8))
	}
	if r.b.dev.Limits().Moderation {
		r.check(m.Moderate(0, 0))
		r.works()
	}
	r.check(r.b.recvCQ.Close())
	if err := m.Moderate(1, 0); !errors.Is(err, net.ErrClosed) {
		r.Fatalf("moderating a closed queue: %v", err)
	}
}

// Traffic class, service level and hop limit of packets do not change the transferred data.
func testMarks(r *fixture) {
	for _, c := range []fabric.QPConfig{
		{TrafficClass: 0xb8, ServiceLevel: 5, HopLimit: 1},
		{TrafficClass: 0xff, ServiceLevel: 15, HopLimit: 255},
	} {
		for _, e := range r.ends() {
			e.qp = must(r.newQPWith(e, func(q *fabric.QPConfig) {
				q.TrafficClass, q.ServiceLevel, q.HopLimit = c.TrafficClass, c.ServiceLevel, c.HopLimit
			}))(r)
		}
		r.link(r.Timing)
		r.works()
	}
	if _, err := r.newQPWith(r.a, func(c *fabric.QPConfig) { c.ServiceLevel = 16 }); !errors.Is(err, unix.EINVAL) {
		r.Fatalf("service level 16: %v", err)
	}
}
