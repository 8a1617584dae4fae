package guard

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/iounit/policy"
)

// newGuarded returns the guard of a host with two queues and a latency queue, and the queues behind it.
func newGuarded(t *testing.T, of Options, change ...func(*Rules)) (*Guard, []*queue) {
	t.Helper()
	queues := []*queue{{}, {}, {}}
	of.Latency, of.Taken, of.Wake = true, new(atomic.Pointer[protocol.MACSet]), func() {}
	for _, q := range queues {
		of.Queues = append(of.Queues, q)
	}
	g := New(of)
	r := &Rules{MAC: own, Host: hostWith("all"), Every: true, MTU: protocol.MaxMTU, Card: protocol.MaxMTU}
	for _, c := range change {
		c(r)
	}
	g.SetRules(r)
	return g, queues
}

// TestGuardLatency has a host exceed its rate. Only the last queue, that of the latency channel, must
// go on.
func TestGuardLatency(t *testing.T) {
	h := &hand{at: time.Hour}
	g, _ := newGuarded(t, Options{}, limited(policy.MinRate, h))
	big := frame(other, own, 60000)
	if err := g.queues[0].WriteFrame(big); err == nil {
		t.Fatal("a bucket that is empty lets a frame pass")
	}
	for i, want := range []bool{false, false, true} {
		if got := g.queues[i].WriteFrame(frame(other, own, 60)) == nil; got != want {
			t.Errorf("queue %d goes on: %t, want %t", i, got, want)
		}
	}
}

// TestGuardMarkers has a marker arrive in one queue, which must be read from all queues.
func TestGuardMarkers(t *testing.T) {
	g, queues := newGuarded(t, Options{Direct: func() bool { return true }})
	queues[1].In = [][]byte{markerFrame(1)}
	for _, i := range []int{1, 0, 2} {
		if got := readAll(t, g.queues[i], 4); !equal(got, []int{-1}) {
			t.Errorf("queue %d has %d", i, got)
		}
	}
}

// TestGuardStations limits frames to unknown stations by a change of the rules. Stations must be
// learned from then on, by all queues together.
func TestGuardStations(t *testing.T) {
	h := &hand{at: time.Hour}
	g, queues := newGuarded(t, Options{Stations: newStations(h.now)})
	limited := *g.rules.Load()
	limited.toUnknown = newBucket(bounds{packets: policy.MinPPS}, h.now)
	g.SetRules(&limited)
	if g.queues[0].WriteFrame(frame(machine, own, 60)); len(queues[0].Out) != 0 {
		t.Error("a frame to an unknown station passes an empty bucket")
	}
	queues[1].In = [][]byte{frame(own, machine, 60)}
	if _, err := g.queues[1].ReadFrame(make([]byte, 2000)); err != nil {
		t.Fatal(err)
	}
	if g.queues[0].WriteFrame(frame(machine, own, 60)); len(queues[0].Out) != 1 {
		t.Error("a frame to a station that another queue has heard does not pass")
	}
}
