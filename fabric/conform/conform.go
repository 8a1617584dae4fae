// Package conform has the properties that every implementation of package fabric must have:
// functions that test the promises of the contract on a pair of devices.
//
// [Properties] returns all of them. fabrictest.Run runs each as a test. [Examine] tests the
// properties that are safe to test on a user's adapter, and reports its findings. The package
// is part of the product and does not import package testing.
package conform

import (
	"time"

	"github.com/splitnic/splitnic/fabric"
)

// T receives the reports of a property. *testing.T implements it. Fatalf and Skipf do not return.
type T interface {
	Helper()
	Cleanup(func())
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
	Logf(format string, args ...any)
	Failed() bool
}

// Pair has the two devices on which a property is tested. They can reach each other, and may be
// the same device, opened twice. The creator of the pair closes them afterwards; the property
// may already have closed them.
type Pair struct {
	A, B   fabric.Device
	Traits Traits

	// Timing is used for every connection for which a property needs no special timing. Zero
	// fields have their defaults.
	Timing fabric.Timing
	// Scale divides the number of messages of the long properties; 0 means 1.
	Scale int
	// Patience is the time after which a step that is not done fails the property; 0 means 20
	// seconds. A step that succeeds never takes that long.
	Patience time.Duration
	// Inline is the number of bytes of inline data that sessions ask for.
	Inline int
	// RNR, if not nil, returns the number of times that a message found no posted receive.
	RNR func() uint64

	// anyRefusal is set where the traits are not known: what must be refused may be refused with
	// any status, a queue pair that has failed may refuse posts, and data of a write without
	// immediate data may be seen late.
	anyRefusal bool

	owned *[][]byte // collects the memory of the property, for a caller that unmaps it
}

// own collects memory, and reports whether somebody unmaps it.
func (p *Pair) own(mem []byte) bool {
	if p.owned == nil {
		return false
	}
	*p.owned = append(*p.owned, mem)
	return true
}
