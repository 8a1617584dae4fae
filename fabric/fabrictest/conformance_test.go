package fabrictest_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
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
			for _, p := range conform.Properties() {
				t.Run(p.Name, func(t *testing.T) {
					pair := newPair(t)
					pair.Traits, pair.Scale = conform.FamilyTraits(f), 10
					done := make(chan struct{})
					go func() {
						defer close(done)
						p.Check(lacking{t, lacks(f, p.Name)}, pair)
					}()
					<-done
				})
			}
		})
	}
}

// lacking is the test of a property on an adapter. A property that the adapter does not have is left
// out in the middle of its test, when that has shown that it is refused. The test has passed if the
// facts say so.
type lacking struct {
	*testing.T
	may bool
}

func (l lacking) Skip(args ...any) {
	l.Helper()
	if !l.may {
		l.Error("left out, and the facts do not say so:", fmt.Sprint(args...))
	}
	l.Log(args...)
	runtime.Goexit()
}

func (l lacking) Skipf(format string, args ...any) { l.Helper(); l.Skip(fmt.Sprintf(format, args...)) }

// lacks reports whether adapters of a family do not have a property, or not all of it.
func lacks(f *adapters.Family, property string) bool {
	const inline = 64 // what the properties send
	switch {
	case property == "GatherInvalidation" && f.Windows == "none":
		return true
	case strings.HasPrefix(property, "Window"):
		return f.Windows == "none" || !f.AllocMW.OK()
	case property == "GatherInvalidation" && !f.AllocMW.OK():
		return true
	case property == "Inline" || property == "ReceiverNotReady" || property == "GatherInline" && f.SGE > 1:
		return f.InlineMax < inline || f.LateInline
	case strings.HasPrefix(property, "Gather"):
		return f.SGE == 1
	case strings.HasPrefix(property, "Unreliable"):
		return !f.UC.OK()
	case property == "EventSolicited" || property == "EventFailure":
		return !f.ArmSolicited.OK()
	case property == "Failed":
		return !f.QueryQP.OK()
	default:
		return false
	}
}

// TestConformanceLoopback runs the conformance suite with both ends on one device, which has fewer
// features.
func TestConformanceLoopback(t *testing.T) {
	l := fabrictest.DefaultLimits()
	l.WindowBounds = false
	small := func(n *fabrictest.Network) { n.SetMTU(1024) }
	newPair := pair("a", "a", fabrictest.WithLimits(l), small, fabrictest.WithQuietFlushes())
	fabrictest.Run(t, func(t *testing.T) conform.Pair {
		p := newPair(t)
		p.Traits = conform.Traits{QuietFailures: true, QuietFlushes: true}
		return p
	})
}
