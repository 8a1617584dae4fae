//go:build cgo

package adapters_test

import (
	"testing"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/conform"
	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/internal/adapters"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/verbs"
)

// TestRDMAConformanceFamilies runs the conformance suite on Soft-RoCE devices that behave like each
// family of adapters on which there can be sessions. What the facts say is a trait; all else that is
// not as in the contract fails the test.
func TestRDMAConformanceFamilies(t *testing.T) {
	testenv.NeedRoot(t)
	testenv.NeedRDMA(t, 2)
	if f := adapters.Named(testenv.AdapterFamily()); f != nil {
		fabrictest.Run(t, func(t *testing.T) conform.Pair { return familyPair(t, f) })
		return
	}
	for _, f := range adapters.All() {
		if f.Suitable() {
			t.Run(f.Name, func(t *testing.T) { again(t, "TestRDMAConformanceFamilies", f.Name, "facts.txt") })
		}
	}
}

// familyPair opens both devices.
func familyPair(t *testing.T, f *adapters.Family) conform.Pair {
	t.Helper()
	names := testenv.NeedRDMA(t, 2)
	var devices [2]*verbs.Context
	for i := range devices {
		d, err := verbs.Open(names[i])
		check(t, err)
		t.Cleanup(func() { check(t, d.Close()) })
		devices[i] = d
	}
	return conform.Pair{
		A: devices[0], B: devices[1], Traits: familyTraits(t, f), Scale: 10,
		RNR: func() (n uint64) {
			for _, name := range names[:2] {
				n += testenv.RDMACounter(t, name, "send_rnr_err")
			}
			return n
		},
	}
}

// familyTraits returns the traits of Soft-RoCE that behaves like a family of adapters.
func familyTraits(t *testing.T, f *adapters.Family) conform.Traits {
	t.Helper()
	k, err := conform.KernelOf(testenv.KernelRelease(t))
	check(t, err)
	s := conform.SoftRoCE(k)
	s.RefusedWriteImm = 0     // the library hides that
	s.UnboundedWindows = true // the library does not change that
	own := conform.FamilyTraits(f)
	s.NoWindows, s.NoWindowAlloc = s.NoWindows || own.NoWindows, own.NoWindowAlloc
	s.NoUC, s.NoQuery = own.NoUC, own.NoQuery
	s.StrictPosts, s.SilentFlushes = own.StrictPosts, own.SilentFlushes
	s.NoSolicited, s.ArmsAny = own.NoSolicited, own.ArmsAny
	s.QuietFailures = s.QuietFailures && !s.ArmsAny || s.SilentFlushes
	s.QuietFlushes = s.QuietFlushes && !s.ArmsAny || s.SilentFlushes
	return s
}

// TestTraitsOfDrivers compares what package conform knows of drivers with the facts.
func TestTraitsOfDrivers(t *testing.T) {
	for _, f := range adapters.All() {
		if !f.Suitable() {
			continue
		}
		s, err := conform.TraitsOf(f.Driver, "", fabric.Limits{Windows: f.Windows != "none"})
		if err != nil || s.StrictPosts == f.PostInError.OK() || s.NoWindows != (f.Windows == "none") {
			t.Errorf("%s: %+v, error %v", f.Name, s, err)
		}
	}
}
