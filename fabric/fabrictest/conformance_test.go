package fabrictest_test

import (
	"errors"
	"testing"

	"go.uber.org/goleak"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/conform"
	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/internal/adapters"
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

// TestConformanceAdapters runs the conformance suite on the adapters of each family, with the traits
// that its facts give it. Those that cannot have sessions are not opened.
func TestConformanceAdapters(t *testing.T) {
	for _, f := range adapters.All() {
		t.Run(f.Name, func(t *testing.T) {
			if !f.Suitable() {
				if _, err := fabrictest.New(fabrictest.WithFamily(f)).Open("a"); !errors.Is(err, fabric.ErrUnsupported) {
					t.Errorf("it was opened: %v", err)
				}
				return
			}
			newPair := pair("a", "b", fabrictest.WithFamily(f))
			fabrictest.Run(t, func(t *testing.T) conform.Pair {
				p := newPair(t)
				p.Traits, p.Scale = conform.FamilyTraits(f), 10
				return p
			})
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
