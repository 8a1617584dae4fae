package fabrictest_test

import (
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/conform"
	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pair returns a function that opens the devices a and b of a new network. The names may be equal.
func pair(a, b string, opts ...fabrictest.Option) func(*testing.T) conform.Pair {
	return func(t *testing.T) conform.Pair {
		n := fabrictest.New(opts...)
		fabrictest.NoLeaks(t, n)
		p := conform.Pair{A: n.Device(a), B: n.Device(b), Patience: testenv.Patience}
		for _, d := range []fabric.Device{p.A, p.B} {
			t.Cleanup(func() { check(t, d.Close()) })
		}
		p.RNR = func() uint64 { return n.Counters(a).RNR + n.Counters(b).RNR }
		return p
	}
}

func TestConformance(t *testing.T) {
	fabrictest.Run(t, pair("a", "b"))
}

// TestConformanceAdapters runs the conformance suite on devices that differ from one that can do
// everything, and that the contract allows for.
func TestConformanceAdapters(t *testing.T) {
	for name, a := range map[string]struct {
		fabrictest.Adapter
		conform.Traits
		without []string // properties
	}{
		"no inline data": {fabrictest.Adapter{Inline: -1}, conform.Traits{},
			[]string{"Inline", "GatherInline", "ReceiverNotReady"}},
		"no UC": {fabrictest.Adapter{NoUC: unix.EOPNOTSUPP}, conform.Traits{NoUC: true},
			[]string{"Unreliable", "UnreliableDrops"}},
		"strict posts": {fabrictest.Adapter{StrictPosts: true}, conform.Traits{StrictPosts: true}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			newPair := pair("a", "b", fabrictest.WithAdapter(a.Adapter))
			fabrictest.Run(t, func(t *testing.T) conform.Pair {
				p := newPair(t)
				p.Traits = a.Traits
				return p
			}, a.without...)
		})
	}
}

// TestConformanceLoopback runs the conformance suite with both ends on one device, which has fewer
// features.
func TestConformanceLoopback(t *testing.T) {
	l := fabrictest.DefaultLimits()
	l.WindowBounds = false
	newPair := pair("a", "a", fabrictest.WithLimits(l), fabrictest.WithMTU(1024), fabrictest.WithQuietFlushes())
	fabrictest.Run(t, func(t *testing.T) conform.Pair {
		p := newPair(t)
		p.Traits = conform.Traits{QuietFailures: true, QuietFlushes: true}
		return p
	})
}
