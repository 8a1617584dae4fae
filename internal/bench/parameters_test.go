package bench

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/seal"
	"github.com/splitnic/splitnic/splitdrv/session"
)

const someRun = "0123456789abcdef"

var fullSpec = Spec{
	Kind: BW, Mode: protocol.ModeSend, Size: 65519, Queues: 16, Duration: MaxDuration, WarmUp: maxMessages,
	Bidirectional: true, PostList: MaxPostList, TxDepth: MaxTxDepth, Poll: true, NoPack: true,
	Protection: messaging.ProtectOneTouch, Cipher: seal.AES256GCM,
}

func TestParameters(t *testing.T) {
	for _, s := range []Spec{someSpec, fullSpec,
		{Kind: Lat, Mode: protocol.ModeImm, Size: MinSize, Queues: 1, Iterations: 1}} {
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		features := append(s.encode(someRun), "pack", "latency-queue")
		got, run, err := parseParameters(features, []protocol.Mode{s.Mode}, s.Queues)
		if err != nil || got != s || run != someRun {
			t.Errorf("%+v came back as %+v in run %s: %v", s, got, run, err)
		}
	}
	// Only another version of the parameters may change these names.
	want := "bench.version.2 bench.run." + someRun +
		" bench.kind.bw bench.size.65519 bench.duration.3600000000000 bench.warm-up.2305843009213693951 " +
		"bench.post-list.1024 bench.tx-depth.4096 bench.bidirectional.true bench.poll.true bench.no-pack.true bench.protection.one-touch bench.cipher.aes-256-gcm"
	if got := strings.Join(fullSpec.encode(someRun), " "); got != want {
		t.Errorf("the words are %s", got)
	}
	// Every field of fullSpec is set, and so is encoded.
	v := reflect.ValueOf(fullSpec)
	for i := range v.NumField() {
		if f := v.Type().Field(i).Name; v.Field(i).IsZero() && f != "Iterations" {
			t.Errorf("%s is not tested", f)
		}
	}
	// The parameters fit into a Hello message.
	h := session.Hello{Features: fullSpec.encode(someRun)}
	for _, w := range h.Features {
		if len(w) > 64 || !session.ValidName(w) {
			t.Errorf("%q is no word", w)
		}
	}
}

func TestParametersRefused(t *testing.T) {
	good := slices.Clip(someSpec.encode(someRun)) // each append makes a list of its own
	replaced := func(old, with string) []string {
		var w []string
		for _, f := range good {
			w = append(w, strings.Replace(f, old, with, 1))
		}
		return w
	}
	for _, features := range [][]string{
		nil, replaced("version.2", "version.3"), replaced("run."+someRun, "run.xyz"), replaced("run."+someRun, "run.00"),
		replaced("bench.run", "run"), append(good, "bench.size.1500"), append(good, "bench.new.1"),
		append(good, "bench.poll.no"),
		replaced("size.1500", "size.many"),
		replaced("size.1500", "size.99999999999999999999"),
	} {
		if _, _, err := parseParameters(features, []protocol.Mode{protocol.ModeImm}, 1); !errors.Is(err, errParameters) {
			t.Errorf("%q: %v", features, err)
		}
	}
	for _, features := range [][]string{replaced("size.1500", "size.1"), replaced("size.1500", "size.-3"),
		replaced("kind.bw", "kind.x"), replaced("iterations.200", "iterations.0")} {
		_, _, err := parseParameters(features, []protocol.Mode{protocol.ModeImm}, 1)
		if err == nil || errors.Is(err, errParameters) {
			t.Errorf("%q: %v", features, err)
		}
	}
	if _, _, err := parseParameters(good, protocol.Modes(), 1); !errors.Is(err, errParameters) {
		t.Errorf("several modes: %v", err)
	}
}

func TestCheck(t *testing.T) {
	for words, change := range map[string]func(*Spec){
		"measurement":        func(s *Spec) { s.Kind = "x" },
		"--mode":             func(s *Spec) { s.Mode = "x" },
		"--protection":       func(s *Spec) { s.Protection = "x" },
		"--size 23":          func(s *Spec) { s.Size = MinSize - 1 },
		"--size 65536":       func(s *Spec) { s.Size = MaxSize + 1 },
		"24 to 65519":        func(s *Spec) { s.Size, s.Cipher = 65520, seal.AES128GCM },
		"--encrypt":          func(s *Spec) { s.Cipher = "rot13" },
		"--qp 0":             func(s *Spec) { s.Queues = 0 },
		"--qp 17":            func(s *Spec) { s.Queues = 17 },
		"one queue":          func(s *Spec) { s.Kind, s.Queues = Lat, 2 },
		"both ways":          func(s *Spec) { s.Kind, s.Bidirectional = Lat, true },
		"--iters 0":          func(s *Spec) { s.Iterations = 0 },
		"give one of them":   func(s *Spec) { s.Duration = time.Second },
		"at most":            func(s *Spec) { s.WarmUp = 1 << 63 },
		"one for each queue": func(s *Spec) { s.Iterations, s.Queues = 1, 2 },
		"--duration -1s":     func(s *Spec) { s.Iterations, s.Duration = 0, -time.Second },
		"--duration 2h":      func(s *Spec) { s.Iterations, s.Duration = 0, 2*time.Hour },
		"--post-list -1":     func(s *Spec) { s.PostList = -1 },
		"--post-list 1025":   func(s *Spec) { s.PostList = 1025 },
		"--tx-depth 4097":    func(s *Spec) { s.TxDepth = 4097 },
		"--tx-depth 2":       func(s *Spec) { s.TxDepth = 2 },
		"--tx-depth 9":       func(s *Spec) { s.PostList, s.TxDepth = 8, 9 },
	} {
		s := someSpec
		change(&s)
		if err := s.Check(); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%+v: %v, want %q", s, err, words)
		}
	}
}

// TestCheckedRuns expects the messaging layer to accept whatever Check accepts.
func TestCheckedRuns(t *testing.T) {
	_, a, _ := devices(t)
	for _, mode := range protocol.Modes() {
		for post := range 40 {
			for depth := range 60 {
				s := someSpec
				s.Mode, s.PostList, s.TxDepth = mode, post, depth
				if s.Check() != nil {
					continue
				}
				c := s.messaging(patient)
				c.Device = a
				if err := c.Check(); err != nil {
					t.Errorf("%+v: %v", s, err)
				}
			}
		}
	}
}

func FuzzParameters(f *testing.F) {
	f.Add(strings.Join(someSpec.encode(someRun), " "), 1)
	f.Add(strings.Join(fullSpec.encode(someRun), " "), 16)
	f.Add("bench.version.2 bench.", 0)
	f.Fuzz(func(t *testing.T, features string, queues int) {
		modes := []protocol.Mode{protocol.ModeImm}
		s, run, err := parseParameters(strings.Fields(features), modes, queues)
		if err != nil {
			return
		}
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		again, run2, err := parseParameters(s.encode(run), modes, queues)
		if err != nil || again != s || run2 != run {
			t.Fatalf("%+v came back as %+v: %v", s, again, err)
		}
	})
}

func FuzzReport(f *testing.F) {
	f.Add([]byte(`{"messages":3,"nanoseconds":4,"peak_rate":5.5,"cpu_nanoseconds":6,"allocations":7}`))
	f.Add([]byte(`{"nanoseconds":-1}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parseReport(b)
		if err == nil && (r.Time < 0 || r.CPU < 0 || !(r.PeakRate >= 0)) {
			t.Fatalf("%+v", r)
		}
		if rate := rateOf(r); err == nil && !(rate >= 0) {
			t.Fatal(rate)
		}
	})
}
