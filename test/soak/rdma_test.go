package soak

import (
	"testing"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/verbs"
)

// Defaults of the tests on RDMA devices, which environment variables override.
const (
	rdmaCycles = 24
	rdmaFrames = 200
)

// newRDMA returns a ground with the host on one RDMA device and the I/O unit on another.
func newRDMA(t *testing.T) *ground {
	t.Helper()
	devices := testenv.NeedRDMA(t, 2)
	testenv.NeedTools(t, "rdma")
	g := newGround(t, nil, func(s side) (fabric.Device, error) { return verbs.Open(devices[s]) })
	if d, ok := g.unit.Device.(*verbs.Context); ok && d.Driver() == "rdma_rxe" {
		g.timing.Timeout = 18 // as in splitnic: the timer of rdma_rxe expires without need
	}
	return g
}

// TestRDMASoakCycles is TestSoakCycles on RDMA devices.
func TestRDMASoakCycles(t *testing.T) {
	seed := newSeed(t)
	soakCycles(t, newRDMA(t), seed, rdmaCycles, scale{frames: 100, slots: 6})
}

// TestRDMASoakFrames is TestSoakFrames on RDMA devices.
func TestRDMASoakFrames(t *testing.T) {
	seed := newSeed(t)
	soakFrames(t, newRDMA(t), seed, rdmaFrames, scale{frames: 1, exactly: 40, slots: 20})
}
