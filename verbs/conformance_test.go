//go:build cgo

package verbs_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/verbs"
)

// pairOf opens the i-th and the j-th device for the conformance suite.
func pairOf(i, j int) func(*testing.T) fabrictest.Pair {
	return func(t *testing.T) fabrictest.Pair {
		a, b := openDevice(t, i), openDevice(t, j)
		p := fabrictest.Pair{A: a, B: b, Traits: fabrictest.Traits{NoWindows: !a.Limits().Windows}}
		if a.Driver() == "rdma_rxe" {
			p.Traits = fabrictest.SoftRoCE(kernel(t))
			p.Scale = 10
			p.RNR = func() uint64 {
				var n uint64
				for _, c := range []*verbs.Context{a, b} {
					n += must(verbs.Counters(c.Name(), 1))(t)["send_rnr_err"]
				}
				return n
			}
		}
		return p
	}
}

// kernel is the one that runs.
func kernel(t *testing.T) fabrictest.Kernel {
	t.Helper()
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		t.Fatal(err)
	}
	return must(fabrictest.KernelOf(unix.ByteSliceToString(u.Release[:])))(t)
}

func TestRDMAConformance(t *testing.T) { fabrictest.Run(t, pairOf(0, 1)) }

// Both ends on one device: the kernel takes a shorter way.
func TestRDMAConformanceLoopback(t *testing.T) { fabrictest.Run(t, pairOf(0, 0)) }
