package hosts

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/splitnic/splitnic/scripts/measure/tools"
	"github.com/splitnic/splitnic/vnet"
)

// trips has the times in seconds of round trips of single frames, between the LAN and a host
// that has nothing else to do.
type trips struct{ median, p99 float64 }

const (
	// between is the time from the answer to one frame until the next frame.
	between = time.Millisecond
	// answerWithin is the time after which a frame or its answer counts as lost. None may be
	// lost.
	answerWithin = 30 * time.Second
)

// trips sends single frames from the LAN to a host, one after the other for d. The host answers
// all of them.
func (m *gathering) trips(ctx context.Context, n *netdev, d time.Duration) (*trips, error) {
	s, err := n.State()
	if err != nil {
		return nil, err
	}
	port := m.lan.of(s.MAC)
	if port == nil {
		return nil, fmt.Errorf("no port has the address %v of the host", s.MAC)
	}
	ask, answer := frameOf(s.MAC, nobody), frameOf(nobody, s.MAC)
	arrived := make(chan time.Time, 1)
	var expected atomic.Uint64
	hears := func(op *vnet.WriteOp) {
		if number := numberOf(op); number > 0 && number == expected.Load() {
			arrived <- time.Now()
		}
	}
	failed := make(chan error, 1)
	answers := func(op *vnet.WriteOp) {
		number := numberOf(op)
		if number == 0 {
			return
		}
		binary.BigEndian.PutUint64(answer[numberAt:], number)
		if err := n.port.send(answer); err != nil {
			failed <- err
		}
	}
	port.heard.Store(&hears)
	n.port.heard.Store(&answers)
	defer port.heard.Store(nil)
	defer n.port.heard.Store(nil)
	var took []float64
	lost := time.NewTimer(answerWithin)
	defer lost.Stop()
	for end := time.Now().Add(d); len(took) == 0 || time.Now().Before(end); {
		binary.BigEndian.PutUint64(ask[numberAt:], expected.Add(1))
		lost.Reset(answerWithin)
		began := time.Now()
		if err := port.send(ask); err != nil {
			return nil, err
		}
		select {
		case at := <-arrived:
			took = append(took, at.Sub(began).Seconds())
		case err := <-failed:
			return nil, err
		case <-lost.C:
			return nil, fmt.Errorf("no answer to a frame within %v", answerWithin)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		time.Sleep(between)
	}
	slices.Sort(took)
	return &trips{median: tools.Percentile(took, 0.5), p99: tools.Percentile(took, 0.99)}, nil
}
