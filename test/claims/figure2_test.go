package claims

import (
	"fmt"
	"testing"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/testenv"
)

func TestNetnsFigure2Topology(t *testing.T) { inMemory(t, figure2Topology) }
func TestRDMAFigure2Topology(t *testing.T)  { onSoftRoCE(t, figure2Topology) }

// Two hosts and two I/O units are on one fabric. Each I/O unit has a network card on its own LAN,
// and both hosts share the card. Every host reaches an object on every LAN, and has its own pair of
// channels to each I/O unit.
func figure2Topology(t *testing.T, on fabricOf) {
	testenv.NeedTUN(t)
	tp, devs := openDevices(t, on)
	hostKey, unitKey := newKey(t), newKey(t)
	var units, lans [2]string
	for u := range units {
		var cardNS string
		cardNS, lans[u] = newLAN(t, fmt.Sprintf("10.79.%d.1", u))
		name := fmt.Sprintf("unit%d", u)
		units[u] = on.startUnit(t, devs[unitSide], name, cardNS, onCard, security(t, unitKey, hostKey)).addr
	}
	var hosts [2]string
	for h := range hosts {
		hosts[h] = testenv.NetNS(t)
		for u, addr := range units {
			// An I/O unit identifies a host by its name.
			on.startHost(t, devs[hostSide], fmt.Sprintf("host%d", h), fmt.Sprintf("sn%d", u), hosts[h], addr,
				security(t, hostKey, unitKey))
		}
	}
	for h, ns := range hosts {
		for u := range units {
			carrier(t, ns, fmt.Sprintf("sn%d", u), fmt.Sprintf("10.79.%d.%d", u, h+2))
		}
	}
	tp.dropTrials()
	for h, ns := range hosts {
		for u := range units {
			ping(t, ns, fmt.Sprintf("10.79.%d.1", u), 20, 500)
			ping(t, lans[u], fmt.Sprintf("10.79.%d.%d", u, h+2), 20, 500)
		}
	}
	// Each of the four pairs of a host and an I/O unit has its own two connections, and each pair
	// carries data.
	for _, side := range sides {
		carried := map[uint32]int{}
		for _, e := range tp.pick(side, sendPosted) {
			if e.send.Op == fabric.OpWriteImm {
				frames, err := framesIn(e.data)
				if err != nil {
					t.Errorf("a write of the %s: %v", side, err)
				}
				carried[e.qpn] += len(frames)
			}
		}
		peers := map[uint32]bool{}
		for _, c := range tp.pick(side, connected) {
			peers[c.remote.QPN] = true
		}
		if len(carried) != 4 || len(peers) != 8 || len(tp.pick(side, qpMade)) != 8 {
			t.Errorf("%s: %d data channels carry data, to %d queue pairs", side, len(carried), len(peers))
		}
		for qpn, n := range carried {
			if n < 40 {
				t.Errorf("%s: %d packets on queue pair %d", side, n, qpn)
			}
		}
	}
}
