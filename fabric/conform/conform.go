// Package conform has the properties that every implementation of package fabric
// has: what the contract promises, as functions that try it on a pair of devices.
//
// [Properties] are all of them. fabrictest.Run makes a test of each; [Examine]
// tries those that may be tried on a user's adapter, and tells what it found. The
// package is part of the product and does not import package testing.
package conform

import (
	"time"

	"github.com/splitnic/splitnic/fabric"
)

// T is what a property reports to. A *testing.T is one. Fatal, Fatalf, Skip and
// Skipf do not return.
type T interface {
	Helper()
	Cleanup(func())
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Skip(args ...any)
	Skipf(format string, args ...any)
	Logf(format string, args ...any)
	Failed() bool
}

// Pair is what a property is tried on: two devices that reach each other. They
// may be the same device, opened twice. Whoever makes the pair closes them,
// afterwards; the property may have closed them before.
type Pair struct {
	A, B   fabric.Device
	Traits Traits

	// Timing is for every connection that a property does not need special timing
	// for; zero fields have their defaults.
	Timing fabric.Timing
	// Scale divides the number of messages of the long ones; 0 means 1.
	Scale int
	// Patience is how long one step may take before the property fails; 0 means
	// 20 seconds. A pass never takes that long.
	Patience time.Duration
	// RNR, if not nil, returns how often a message found no receive posted.
	RNR func() uint64
}
