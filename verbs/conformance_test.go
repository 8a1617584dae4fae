//go:build cgo

package verbs_test

import (
	"testing"

	"github.com/splitnic/splitnic/fabric/conform"
	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/verbs"
)

// pairOf opens the i-th and the j-th device for the conformance suite.
func pairOf(i, j int) func(*testing.T) conform.Pair {
	return func(t *testing.T) conform.Pair {
		a, b := openDevice(t, i), openDevice(t, j)
		traits := must(conform.TraitsOf(a.Driver(), testenv.KernelRelease(t), a.Limits()))(t)
		p := conform.Pair{A: a, B: b, Traits: traits}
		if a.Driver() == "rdma_rxe" {
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

func TestRDMAConformance(t *testing.T) { fabrictest.Run(t, pairOf(0, 1)) }

// Both ends on one device: the kernel takes a shorter way.
func TestRDMAConformanceLoopback(t *testing.T) { fabrictest.Run(t, pairOf(0, 0)) }
