package bench

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/vnet"
)

func newTestGate(t *testing.T, s *Spec) *gate {
	t.Helper()
	g, err := newGate(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	return g
}

func newTestFlood(t *testing.T, s *Spec, sends bool) *flood {
	t.Helper()
	var tx *sending
	var rx *receiving
	if sends {
		tx = newSending(s)
	} else {
		rx = newReceiving()
	}
	p := newFlood(s, newTestGate(t, s), tx, rx)
	if sends {
		dry(t, p)
	}
	p.release()
	return p
}

// readable reports whether the descriptor of a port is readable.
func readable(t *testing.T, p messaging.Port) bool {
	t.Helper()
	return testenv.Readable(t, p.FD(), 0)
}

// pass moves a frame from one port to another, in two parts if parted. It returns the kind of
// the frame.
func pass(t *testing.T, from, to messaging.Port, parted bool) kind {
	t.Helper()
	f, err := read(from)
	if err != nil {
		t.Fatal(err)
	}
	w := []vnet.WriteOp{{Head: f}}
	if parted {
		w[0].Head, w[0].Rest = f[:vnet.MinFrame], f[vnet.MinFrame:]
	}
	if to.WriteFrames(w) != 1 || w[0].Err != nil {
		t.Fatalf("%+v", w[0].Err)
	}
	return kindOf(f)
}

// read reads one frame.
func read(p messaging.Port) ([]byte, error) {
	ops := []vnet.ReadOp{{Slot: make([]byte, 1<<16)}}
	p.ReadFrames(ops)
	return ops[0].Frame, ops[0].Err
}

func dry(t *testing.T, p messaging.Port) {
	t.Helper()
	if _, err := read(p); !errors.Is(err, errAgain) {
		t.Errorf("a frame, or %v", err)
	}
	if readable(t, p) {
		t.Error("readable without a frame")
	}
}

func TestFlood(t *testing.T) {
	for _, parted := range []bool{false, true} {
		s := Spec{Kind: BW, Mode: protocol.ModeImm, Size: 100, Queues: 1, Iterations: 3, WarmUp: 2}
		from, to := newTestFlood(t, &s, true), newTestFlood(t, &s, false)
		dry(t, to)
		for i, want := range []kind{kindWarm, kindWarm, kindTimed, kindTimed, kindTimed, kindEnd} {
			if !readable(t, from) {
				t.Fatalf("frame %d: not readable", i)
			}
			if got := pass(t, from, to, parted); got != want {
				t.Fatalf("frame %d is of kind %d, want %d", i, got, want)
			}
		}
		if to.got.Load() != 3 || from.sent.Load() != 3 || !isDone(to.rx.done) || to.rx.report.Messages != 3 {
			t.Fatalf("%d of %d, report %+v", to.got.Load(), from.sent.Load(), to.rx.report)
		}
		dry(t, from)
		if !readable(t, to) || pass(t, to, from, parted) != kindReport || !isDone(from.tx.reported) ||
			from.tx.report != to.rx.report {
			t.Fatalf("report %+v, want %+v", from.tx.report, to.rx.report)
		}
		dry(t, to)
		// Send the last message again, as if the report had been lost.
		from.ask(todoEnd)
		if pass(t, from, to, parted) != kindEnd || pass(t, to, from, parted) != kindReport || to.got.Load() != 3 {
			t.Error("the second end")
		}
	}
}

func TestFloodRefuses(t *testing.T) {
	s := Spec{Kind: BW, Mode: protocol.ModeImm, Size: 100, Queues: 1, Iterations: 3}
	from, to := newTestFlood(t, &s, true), newTestFlood(t, &s, false)
	frame := func(k kind, size int, text string) []byte {
		b := make([]byte, size)
		stamp(b, k, 0)
		return append(b, text...)
	}
	for _, c := range []struct {
		p *flood
		f []byte
	}{
		{to, frame(kindTimed, 101, "")}, {to, frame(kindEnd, 99, "")}, {to, frame(kindReport, 24, "{}")},
		{to, frame(kindPing, 100, "")}, {to, make([]byte, 23)},
		{from, frame(kindTimed, 100, "")}, {from, frame(kindEnd, 100, "")}, {from, frame(kindWarm, 100, "")},
		{from, frame(kindReport, 24, "no")}, {from, frame(kindReport, 24, `{"nanoseconds":-4}`)},
		{from, frame(kindReport, 24+maxReport+1, "")},
	} {
		if c.p.write(c.f, nil) == nil {
			t.Errorf("a frame of kind %d and %d bytes is taken", kindOf(append(c.f, 0)), len(c.f))
		}
	}
	if to.got.Load() != 0 || isDone(from.tx.reported) {
		t.Error("something counted")
	}
}

func TestPingPong(t *testing.T) {
	for _, parted := range []bool{false, true} {
		s := Spec{Kind: Lat, Mode: protocol.ModeImm, Size: 64, Queues: 1, Iterations: 3, WarmUp: 2}
		ping := newPinger(&s, newTestGate(t, &s))
		dry(t, ping)
		ping.release()
		pong := newPonger(newTestGate(t, &s))
		pong.release()
		dry(t, pong)
		for i := range 5 {
			if !readable(t, ping) || pass(t, ping, pong, parted) != kindPing {
				t.Fatalf("round %d: no ping", i)
			}
			dry(t, ping)
			if i == 3 { // sent again and echoed twice
				ping.nudge(3)
				if !readable(t, pong) || pass(t, pong, ping, parted) != kindPong || ping.number.Load() != 4 {
					t.Fatal("the echo")
				}
				continue
			}
			if !readable(t, pong) || pass(t, pong, ping, parted) != kindPong {
				t.Fatalf("round %d: no pong", i)
			}
			dry(t, pong)
		}
		if !isDone(ping.done) || ping.rounds != 3 || ping.lost != 1 || ping.times.TotalCount() != 2 ||
			pong.echoed.Load() != 5 {
			t.Errorf("%d rounds, %d lost, %d recorded, %d echoed", ping.rounds, ping.lost, ping.times.TotalCount(),
				pong.echoed.Load())
		}
		dry(t, ping)
		if ping.WriteFrame(make([]byte, 64)) == nil || pong.WriteFrame(make([]byte, 63)) == nil {
			t.Error("a frame of another kind, or size, is taken")
		}
	}
}

func TestPolledPortsMakeNoCalls(t *testing.T) {
	s := Spec{Kind: BW, Mode: protocol.ModeImm, Size: 64, Queues: 1, Iterations: 3, Poll: true}
	from := newTestFlood(t, &s, true)
	ping := newPinger(&s, newTestGate(t, &s))
	ping.release()
	for _, p := range []messaging.Port{from, ping} {
		if readable(t, p) {
			t.Error("the descriptor of a port that is polled was touched")
		}
		if _, err := read(p); err != nil {
			t.Error(err)
		}
	}
}

// TestJSON expects the names in a JSON result that scripts use.
func TestJSON(t *testing.T) {
	b, err := json.Marshal(Result{Name: Lat, Latency: &Latency{}})
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	words, numbers := []string{"name", "form", "mode", "device", "protection", "cipher"}, []string{
		"size", "queues", "post_list", "tx_depth", "warm_up", "mtu", "iterations", "lost", "seconds", "mib_per_second",
		"peak_mib_per_second",
		"mpps", "transfers_per_second", "posts_per_second", "cpu_seconds_per_gb", "peer_cpu_seconds_per_gb",
		"allocations_per_message", "peer_allocations_per_message",
	}
	truths := []string{"bidirectional", "poll", "no_pack", "bound"}
	expect := func(in map[string]any, names []string, is func(any) bool) {
		for _, n := range names {
			if v, ok := in[n]; !ok || !is(v) {
				t.Errorf("%s is %v", n, v)
			}
		}
	}
	isWord := func(v any) bool { _, ok := v.(string); return ok }
	isNumber := func(v any) bool { _, ok := v.(float64); return ok }
	isTruth := func(v any) bool { _, ok := v.(bool); return ok }
	expect(got, words, isWord)
	expect(got, numbers, isNumber)
	expect(got, truths, isTruth)
	latency, ok := got["latency"].(map[string]any)
	if !ok {
		t.Fatalf("latency is %v", got["latency"])
	}
	times := []string{"min", "typical", "average", "stdev", "p50", "p90", "p99", "p999", "max"}
	expect(latency, times, isNumber)
	if len(got) != len(words)+len(numbers)+len(truths)+1 || len(latency) != len(times) {
		t.Errorf("more than is documented: %s", b)
	}
}
