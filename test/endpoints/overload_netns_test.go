package endpoints

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/splitnic/splitnic/internal/testenv"
)

// TestNetnsOverload sends far more long datagrams than the card can carry, in both directions. The
// excess datagrams have to be dropped before the fabric, and as a whole.
func TestNetnsOverload(t *testing.T) {
	for _, kind := range []string{"macvtap", "tap"} {
		t.Run(kind, func(t *testing.T) {
			s := newTestbed(t, kind, 1500)
			overload(t, s.hostNS, s.lanNS, lanAddr, 3000)
			overload(t, s.lanNS, s.hostNS, "10.78.0.2", 3000)
		})
	}
}

// overload sends long datagrams from one network namespace to an address in another until a part
// of them has not arrived. It sends some at a time. It checks that every fragment that arrives
// belongs to a datagram that arrives completely. Nothing else may send fragments there.
func overload(t testing.TB, from, to, addr string, some int) {
	t.Helper()
	const size, fragments, most = 60000, 41, 10 // with an MTU of 1500
	testenv.NeedTools(t, "ping")
	reach := func() { testenv.Run(t, from, "ping", "-c", "1", "-i", "0.2", "-w", "60", addr) }
	reach()
	keepNeighbour(t, from, addr)
	send := testenv.LongDatagrams(t, from, addr, size)
	for sent := some; ; sent += some {
		for range some {
			send()
		}
		// The answered request was queued behind all datagrams that had room. Another processor
		// may still be handling some of these.
		reach()
		whole := 0
		testenv.Eventually(t, func() bool {
			whole = ipCounter(t, to, "ReasmOKs")
			return whole > 0 && ipCounter(t, to, "ReasmReqds") == fragments*whole
		}, "no fragment of other datagrams than those that arrive")
		switch {
		case sent-whole >= some/10: // the size of the overload depends on the machine
			return
		case sent >= most*some:
			t.Fatalf("%d datagrams of %d arrived: that is no overload", whole, sent)
		}
	}
}

// keepNeighbour makes the entry for addr in a namespace's neighbour table permanent. Otherwise the
// kernel asks again after some time. If all queues are full, it gets no answer, and drops fragments
// by itself.
func keepNeighbour(t testing.TB, ns, addr string) {
	t.Helper()
	f := strings.Fields(testenv.Run(t, ns, "ip", "neigh", "show", addr)) // ADDR dev NAME lladdr MAC STATE
	if len(f) < 5 || f[1] != "dev" || f[3] != "lladdr" {
		t.Fatalf("the neighbour %s: %q", addr, f)
	}
	testenv.Run(t, ns, "ip", "neigh", "replace", addr, "lladdr", f[4], "dev", f[2], "nud", "permanent")
}

// ipCounter reads a counter of IPv4 in a network namespace.
func ipCounter(t testing.TB, ns, name string) int {
	t.Helper()
	var lines [][]string // names, and values
	for l := range strings.Lines(testenv.Run(t, ns, "cat", "/proc/net/snmp")) {
		if f := strings.Fields(l); f[0] == "Ip:" {
			lines = append(lines, f)
		}
	}
	n, err := strconv.Atoi(lines[1][slices.Index(lines[0], name)])
	if err != nil {
		t.Fatal(err)
	}
	return n
}
