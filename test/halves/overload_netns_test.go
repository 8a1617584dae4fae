package halves

import (
	"strconv"
	"strings"
	"testing"

	"github.com/splitnic/splitnic/internal/testenv"
)

// ipCounter reads a counter of IP from /proc/net/snmp of a network namespace.
func ipCounter(t *testing.T, ns, name string) int {
	t.Helper()
	var lines [][]string
	for l := range strings.Lines(testenv.Run(t, ns, "cat", "/proc/net/snmp")) {
		if f := strings.Fields(l); f[0] == "Ip:" {
			lines = append(lines, f)
		}
	}
	for i, n := range lines[0] {
		if n == name {
			v, err := strconv.Atoi(lines[1][i])
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
	t.Fatalf("IP counts no %s", name)
	return 0
}

// TestNetnsOverload sends far more long datagrams than the card carries, both
// ways. Those that it has no room for are dropped before the fabric, and whole:
// every fragment that arrives is one of a datagram that arrives.
func TestNetnsOverload(t *testing.T) {
	const size, fragments = 60000, 41
	for _, kind := range []string{"macvtap", "tap"} {
		for _, way := range []string{"to the LAN", "to the host"} {
			t.Run(kind+" "+way, func(t *testing.T) {
				s := newSite(t, kind, 1500)
				from, to, addr := s.hostNS, s.lanNS, lanAddr
				if way == "to the host" {
					from, to, addr = s.lanNS, s.hostNS, "10.78.0.2"
				}
				testenv.Run(t, from, "ping", "-c", "1", "-W", "10", addr)
				send := testenv.LongDatagrams(t, from, addr, size)
				for sent := 0; ; {
					for range 3000 {
						send()
						sent++
					}
					// What is answered has come behind everything that had room.
					testenv.Run(t, from, "ping", "-c", "1", "-i", "0.1", "-w", "60", addr)
					n, whole := ipCounter(t, to, "ReasmReqds"), ipCounter(t, to, "ReasmOKs")
					if whole == 0 || n != fragments*whole {
						t.Fatalf("%d datagrams were sent; %d fragments arrived, and %d datagrams", sent, n, whole)
					}
					if whole < sent*9/10 {
						return
					}
					if sent > 30000 {
						t.Fatalf("%d datagrams of %d arrived: that is no overload", whole, sent)
					}
				}
			})
		}
	}
}
