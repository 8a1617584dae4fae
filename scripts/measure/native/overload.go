package native

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/splitnic/splitnic/scripts/measure/results"
)

// frameData is the UDP payload of a frame with an MTU of 1500.
const frameData = 1472

// overloads are the kinds of datagrams of which more is sent than can be carried: one frame each,
// super-frames, and 45 frames each, of which none may be lost.
var overloads = []datagrams{
	{name: "full", size: frameData, burst: 1, window: 300 << 10},
	{name: "segments", size: 44 * frameData, segment: frameData, burst: 1, window: 300 << 10},
	{name: "fragments", size: 65000, burst: 1, window: 300 << 10},
}

// factors has the loads that are offered to a subject, as multiples of what it can carry.
var factors = []float64{2, 5, 10}

const (
	overloadTime = 400 * time.Millisecond
	// The search for what can be carried multiplies the rate by raise, at most raises times.
	raise, raises = 1.5, 8
)

// goodput sends for a while, and returns what was sent and what arrived, in bytes per second.
func (d datagrams) goodput(
	ctx context.Context, from, to, addr string, rate float64,
) (sent, received float64, err error) {
	t, err := newTorrent(from, to, addr, 1, d, rate)
	if err != nil {
		return 0, 0, err
	}
	err = results.Pause(ctx, overloadTime/4)
	begin, s, r := time.Now(), t.sent.Load(), t.received.Load()
	err = errors.Join(err, results.Pause(ctx, overloadTime))
	seconds := time.Since(begin).Seconds()
	sent, received = float64(t.sent.Load()-s)/seconds, float64(t.received.Load()-r)/seconds
	return sent, received, errors.Join(err, t.stop())
}

// capacity returns how many bytes per second can be carried. It first measures without losses,
// and then raises the rate until that does not help. The first result alone is too low if the
// window limits it, and not the subject.
func (d datagrams) capacity(ctx context.Context, from, to, addr string) (float64, error) {
	_, can, err := d.goodput(ctx, from, to, addr, asArrives)
	if err == nil && can == 0 {
		err = errors.New("nothing arrived")
	}
	for range raises {
		if err != nil {
			break
		}
		var more float64
		if _, more, err = d.goodput(ctx, from, to, addr, raise*can); more < 1.1*can {
			break
		}
		can = more
	}
	return can, err
}

// overload measures what can be carried between two network namespaces, and then offers
// multiples of that. The best is the most that arrived in any of these measurements. What was
// offered and what arrived is in relation to the best.
func (d datagrams) overload(ctx context.Context, from, to, addr string, sink results.Sink) error {
	// After this time, fragments of earlier measurements do not use memory any more
	// (ipfrag_time in newTopology).
	if err := results.Pause(ctx, 1100*time.Millisecond); err != nil {
		return err
	}
	can, err := d.capacity(ctx, from, to, addr)
	best := can
	var offered, arrived [3]float64
	for i, f := range factors {
		if err != nil {
			return err
		}
		offered[i], arrived[i], err = d.goodput(ctx, from, to, addr, f*can)
		best = max(best, arrived[i])
	}
	sink.Add(throughput, "Gbit/s", best*8/1e9)
	for i, f := range factors {
		sink.Add(fmt.Sprintf("offered at %g", f), "of the best", offered[i]/best)
		sink.Add(fmt.Sprintf("arrived at %g", f), "of the best", arrived[i]/best)
	}
	return err
}
