//go:build cgo

package verbs_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/conform"
	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/verbs"
)

// pairOf returns a function that opens the i-th and the j-th device for the conformance suite.
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
					n += testenv.RDMACounter(t, c.Name(), "send_rnr_err")
				}
				return n
			}
		}
		return p
	}
}

func TestRDMAConformance(t *testing.T) { fabrictest.Run(t, pairOf(0, 1)) }

// TestRDMAConformanceLoopback runs the conformance suite with both ends on one device, for which
// the kernel uses a shorter path.
func TestRDMAConformanceLoopback(t *testing.T) { fabrictest.Run(t, pairOf(0, 0)) }

// TestRDMAAddressing connects two devices in each way in which their ports can address each other:
// by each kind of GID that both ports have, and on InfiniBand also by LID only.
func TestRDMAAddressing(t *testing.T) {
	kinds := map[string][2]int{} // index of the GID of each end; -1: no GID
	tables := [2]map[string]int{gidKinds(t, 0), gidKinds(t, 1)}
	for kind, i := range tables[0] {
		if j, ok := tables[1][kind]; ok {
			kinds[kind] = [2]int{i, j}
		}
	}
	if len(kinds) == 0 {
		t.Fatalf("the devices have no kind of GID in common: %v", tables)
	}
	infiniBand := must(openDevice(t, 0).Port(1))(t).LinkLayer == verbs.LinkInfiniBand
	if infiniBand {
		kinds["LID"] = [2]int{-1, -1}
	}
	for kind, indices := range kinds {
		t.Run(kind, func(t *testing.T) {
			a := newEnd(t, 0, fabric.RC, verbs.WithGIDIndex(indices[0]))
			b := newEnd(t, 1, fabric.RC, verbs.WithGIDIndex(indices[1]))
			for i, e := range []*end{a, b} {
				addr, want := e.qp.Address(), [16]byte{}
				if indices[i] >= 0 {
					want = e.qp.GID().GID
				}
				if addr.GID != want || indices[i] >= 0 && e.qp.GID().Index != indices[i] {
					t.Errorf("the address is %+v, the chosen GID %v, the wanted index %d", addr, e.qp.GID(), indices[i])
				}
				if (addr.LID != 0) != infiniBand {
					t.Errorf("the address is %+v; InfiniBand: %v", addr, infiniBand)
				}
			}
			connect(t, a.qp, b.qp)
			for _, w := range [][2]*end{{a, b}, {b, a}} {
				copy(w[0].mem, "by "+kind)
				postRecv(t, w[1].qp, fabric.RecvWR{ID: 1})
				postSend(t, w[0].qp, fabric.SendWR{
					ID: 2, Op: fabric.OpWriteImm, Flags: fabric.Signaled, Imm: 3, Addr: w[0].mr.Addr(), Len: memLen / 2,
					LKey: w[0].mr.LKey(), RemoteAddr: w[1].mr.Addr() + memLen/2, RKey: w[1].mr.RKey(),
				})
				pollOK(t, w[0].sendCQ, 1)
				if r := pollOK(t, w[1].recvCQ, 1)[0]; r.Imm != 3 || !bytes.Equal(w[0].mem[:memLen/2], w[1].mem[memLen/2:]) {
					t.Errorf("arrived changed: %+v", r)
				}
			}
		})
	}
}

// gidKinds returns the index of a GID of each kind in the GID table of a device. A kind is the type
// of the GID and the kind of the GID's address.
func gidKinds(t *testing.T, device int) map[string]int {
	kinds := map[string]int{}
	for _, e := range must(openDevice(t, device).QueryGIDTable())(t) {
		a := e.GID.Addr()
		scope := "IPv6"
		switch {
		case e.Port != 1 || e.GID.IsZero():
			continue
		case a.Is4():
			scope = "IPv4"
		case a.IsLinkLocalUnicast():
			scope = "link-local"
		}
		kinds[fmt.Sprintf("%v %s", e.Type, scope)] = e.Index
	}
	return kinds
}
