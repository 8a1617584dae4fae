package bench

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/seal"
)

// patient has a timeout that is long enough on a busy machine.
var patient = messaging.Config{PeerTimeout: time.Minute}

func devices(t testing.TB) (n *fabrictest.Network, a, b fabric.Device) {
	t.Helper()
	n = fabrictest.New()
	a, b = n.Device("a"), n.Device("b")
	t.Cleanup(func() {
		a.Close()
		b.Close()
		goleak.VerifyNone(t)
	})
	return n, a, b
}

// check expects a result to match its specification and to be plausible.
func check(t *testing.T, s Spec, r Result) {
	t.Helper()
	if r.Name != s.Kind || r.Mode != s.Mode || r.Size != s.Size || r.Queues != s.Queues ||
		r.Bidirectional != s.Bidirectional || r.Poll != s.Poll || r.Cipher != s.Cipher {
		t.Errorf("the result is of something else: %+v", r)
	}
	want := s.Iterations
	if s.Bidirectional {
		want *= 2
	}
	if s.Mode == protocol.ModeSendUC {
		want -= min(r.Lost, want)
	}
	if r.Iterations < max(want, 1) || (s.Duration == 0 && r.Iterations > want) {
		t.Errorf("%d messages, want %d: %+v", r.Iterations, want, r)
	}
	if s.Mode != protocol.ModeSendUC && r.Lost != 0 {
		t.Errorf("%d lost", r.Lost)
	}
	if r.Seconds <= 0 || r.Mpps <= 0 || r.MiBPerSecond <= 0 || r.PeakMiBPerSecond < r.MiBPerSecond ||
		r.PostsPerSecond <= 0 || r.TransfersPerSecond <= 0 {
		t.Errorf("rates: %+v", r)
	}
	if (s.Kind == Lat) != (r.Latency != nil) {
		t.Fatalf("latency: %+v", r.Latency)
	}
	if l := r.Latency; l != nil {
		ordered := []float64{0, l.Min, l.P50, l.P90, l.P99, l.P999, l.Max + 0.1*l.Max}
		for i := range ordered[1:] {
			if ordered[i] > ordered[i+1] {
				t.Errorf("not in order: %+v", *l)
			}
		}
		if l.Typical != l.P50 || l.Average < l.Min || l.Average > l.Max {
			t.Errorf("%+v", *l)
		}
	}
}

func TestLocal(t *testing.T) {
	_, a, b := devices(t)
	l := &Local{From: a, To: b, Messaging: patient}
	for name, s := range map[string]Spec{
		"bw":            {Kind: BW, Mode: protocol.ModeImm, Size: 1500, Queues: 1, Iterations: 1000, WarmUp: 100},
		"queues":        {Kind: BW, Mode: protocol.ModeImm, Size: MaxSize, Queues: 3, Iterations: 301},
		"one":           {Kind: BW, Mode: protocol.ModeImm, Size: MinSize, Queues: 1, Iterations: 1},
		"bidirectional": {Kind: BW, Mode: protocol.ModeImm, Size: 9000, Queues: 2, Iterations: 400, Bidirectional: true},
		"duration":      {Kind: BW, Mode: protocol.ModeImm, Size: 1500, Queues: 2, Duration: 50 * time.Millisecond},
		"depth": {Kind: BW, Mode: protocol.ModeImm, Size: MaxSize, Queues: 1, Iterations: 200, PostList: 4,
			TxDepth: 8},
		"indicate":     {Kind: BW, Mode: protocol.ModeIndicate, Size: 1500, Queues: 1, Iterations: 300},
		"send":         {Kind: BW, Mode: protocol.ModeSend, Size: MaxSize, Queues: 1, Iterations: 300},
		"send-uc":      {Kind: BW, Mode: protocol.ModeSendUC, Size: 1500, Queues: 1, Iterations: 300},
		"polled":       {Kind: BW, Mode: protocol.ModeImm, Size: 1500, Queues: 1, Iterations: 200, Poll: true},
		"pps":          {Kind: PPS, Mode: protocol.ModeImm, Size: 64, Queues: 2, Iterations: 5000, WarmUp: 500},
		"unpacked":     {Kind: PPS, Mode: protocol.ModeImm, Size: 64, Queues: 1, Iterations: 5000, NoPack: true},
		"encrypted":    {Kind: BW, Mode: protocol.ModeImm, Size: 65519, Queues: 2, Iterations: 300, Cipher: seal.AES128GCM},
		"lat":          {Kind: Lat, Mode: protocol.ModeImm, Size: 64, Queues: 1, Iterations: 500, WarmUp: 10},
		"lat large":    {Kind: Lat, Mode: protocol.ModeImm, Size: MaxSize, Queues: 1, Iterations: 50},
		"lat time":     {Kind: Lat, Mode: protocol.ModeImm, Size: MinSize, Queues: 1, Duration: 20 * time.Millisecond},
		"lat polled":   {Kind: Lat, Mode: protocol.ModeImm, Size: 64, Queues: 1, Iterations: 20, Poll: true},
		"lat send":     {Kind: Lat, Mode: protocol.ModeSend, Size: 64, Queues: 1, Iterations: 100},
		"lat indicate": {Kind: Lat, Mode: protocol.ModeIndicate, Size: 64, Queues: 1, Iterations: 100},
		"lat encrypted": {Kind: Lat, Mode: protocol.ModeSendUC, Size: 64, Queues: 1, Iterations: 100,
			Cipher: seal.ChaCha20Poly1305},
		"lat send-uc": {Kind: Lat, Mode: protocol.ModeSendUC, Size: 64, Queues: 1, Iterations: 100},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := l.Measure(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			check(t, s, r)
			if r.Form != "local" || r.Device != "a" {
				t.Errorf("%+v", r)
			}
		})
	}
}

// TestPacked compares the numbers of transfers and frames with and without packs.
func TestPacked(t *testing.T) {
	_, a, b := devices(t)
	l := &Local{From: a, To: b, Messaging: patient}
	s := Spec{Kind: PPS, Mode: protocol.ModeImm, Size: 64, Queues: 1, Iterations: 20000, NoPack: true}
	r, err := l.Measure(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if d := r.TransfersPerSecond/1e6 - r.Mpps; d > 1e-6*r.Mpps || d < -1e-6*r.Mpps {
		t.Errorf("without packs, %v million transfers of %v million frames", r.TransfersPerSecond/1e6, r.Mpps)
	}
	s.NoPack = false
	if r, err = l.Measure(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if r.TransfersPerSecond/1e6 > r.Mpps {
		t.Errorf("%v million transfers of %v million frames", r.TransfersPerSecond/1e6, r.Mpps)
	}
}

// TestLossy loses messages, among them the last one and the report that answers it.
func TestLossy(t *testing.T) {
	n, a, b := devices(t)
	l := &Local{From: a, To: b, Messaging: patient}
	for _, c := range []struct {
		spec        Spec
		there, back int // messages lost in each direction, from the first on
		lost        uint64
	}{
		// the twelfth message starts the time, and so 11 are missing
		{Spec{Kind: BW, Mode: protocol.ModeSendUC, Size: 64, Queues: 1, Iterations: 100, NoPack: true}, 11, 0, 11},
		// only the last message arrives, sent again
		{Spec{Kind: BW, Mode: protocol.ModeSendUC, Size: 64, Queues: 1, Iterations: 40, NoPack: true}, 42, 1, 39},
		// the lost messages are those of the warm-up
		{Spec{Kind: Lat, Mode: protocol.ModeSendUC, Size: 64, Queues: 1, Iterations: 20}, 1, 1, 0},
	} {
		n.DropUC("a", c.there)
		n.DropUC("b", c.back)
		r, err := l.Measure(t.Context(), c.spec)
		if err != nil {
			t.Fatal(err)
		}
		check(t, c.spec, r)
		if r.Lost != c.lost {
			t.Errorf("%+v: %d lost, want %d", c.spec, r.Lost, c.lost)
		}
	}
}

func TestLocalEndsEarly(t *testing.T) {
	_, a, b := devices(t)
	l := &Local{From: a, To: b, Messaging: patient}
	s := Spec{Kind: BW, Mode: protocol.ModeImm, Size: 64, Queues: 1, Duration: time.Hour}
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	l.Watch = func(p Progress) {
		if p.Messages == 0 || p.Rate <= 0 || p.Time <= 0 || p.Spec != s {
			t.Errorf("%+v", p)
		}
		cancel(why)
	}
	if _, err := l.Measure(ctx, s); !errors.Is(err, why) {
		t.Errorf("after it was stopped: %v", err)
	}
	s.Size = 10
	if _, err := l.Measure(t.Context(), s); err == nil || !strings.Contains(err.Error(), "--size 10") {
		t.Errorf("a message shorter than its headers: %v", err)
	}
}

// TestBeginnings makes many short measurements. Messages that are sent before the receiver has
// lent all its pools would be dropped.
func TestBeginnings(t *testing.T) {
	_, a, b := devices(t)
	l := &Local{From: a, To: b, Messaging: patient}
	for i := range 150 {
		s := Spec{Kind: BW, Mode: protocol.ModeImm, Size: MaxSize, Queues: 1, Iterations: 3}
		if i%2 == 1 {
			s.Kind, s.Iterations = Lat, 1
		}
		ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
		_, err := l.Measure(ctx, s)
		cancel()
		if err != nil {
			t.Fatalf("%d: %v", i, err)
		}
	}
}
