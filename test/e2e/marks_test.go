package e2e

import (
	"encoding/binary"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// marks has the fields of a packet that routers and switches of the fabric act on.
type marks struct {
	class, hops byte
}

// marksOf returns the sender and the marks of a RoCE v2 packet.
func marksOf(frame []byte) (from netip.Addr, m marks, ok bool) {
	if _, _, _, ok = roce(frame); !ok {
		return
	}
	b := frame[14:]
	if binary.BigEndian.Uint16(frame[12:]) == unix.ETH_P_IP {
		from, _ = netip.AddrFromSlice(b[12:16])
		return from, marks{class: b[1], hops: b[8]}, true
	}
	from, _ = netip.AddrFromSlice(b[8:24])
	return from, marks{class: byte(binary.BigEndian.Uint16(b) >> 4), hops: b[7]}, true
}

// gids returns the entries of a device's GID table, by index.
func gids(t testing.TB, device string) map[int]netip.Addr {
	t.Helper()
	files, err := filepath.Glob("/sys/class/infiniband/" + device + "/ports/1/gids/*")
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no GIDs: %v", device, err)
	}
	table := map[int]netip.Addr{}
	for _, f := range files {
		index, err := strconv.Atoi(filepath.Base(f))
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(f)
		if err != nil {
			continue // reading an empty entry fails on some kernels
		}
		if a, err := netip.ParseAddr(strings.TrimSpace(string(text))); err == nil && !a.IsUnspecified() {
			table[index] = a.Unmap()
		}
	}
	return table
}

// TestRDMATrafficClass captures packets on the fabric's cable. All packets of an endpoint, on all
// channels, have to have the traffic class of its flag, over IPv4 and over IPv6. Completion-queue
// moderation is requested too: Soft-RoCE does not have it, so it has to be off.
func TestRDMATrafficClass(t *testing.T) {
	for _, c := range []struct {
		name string
		want func(netip.Addr) bool
	}{{"IPv4", netip.Addr.Is4}, {"IPv6", netip.Addr.Is6}} {
		t.Run(c.name, func(t *testing.T) {
			needFabric(t)
			expected := map[netip.Addr]marks{}
			index := func(device string, class byte) string {
				for i, a := range gids(t, device) {
					if c.want(a) {
						expected[a] = marks{class, 64}
						return strconv.Itoa(i)
					}
				}
				t.Fatalf("%s has no GID for %s", device, c.name)
				return ""
			}
			r := newFixture(t, "macvtap", "--traffic-class", "0xb9", "--gid-index", index(unitDevice, 0xb9))
			seen := map[netip.Addr]map[marks]int{}
			capture := startCapture(t, fabricNS, fabricPort, func(c captured) {
				if from, m, ok := marksOf(c.frame); ok {
					if seen[from] == nil {
						seen[from] = map[marks]int{}
					}
					seen[from][m]++
				}
			})
			h := r.host(t, "--traffic-class", "104", "--advanced.service-level", "3", "--advanced.cq-moderation", "16,50us",
				"--gid-index", index(hostDevice, 104))
			ping(t, h.ns, addr(0), 5, 1000)
			if h.hostStatus().Traffic.Channels[0].Moderated {
				t.Error("a queue of Soft-RoCE is moderated")
			}
			capture.close()
			for from, want := range expected {
				if seen[from][want] < 10 || len(seen[from]) != 1 {
					t.Errorf("packets from %v: %v, want all with %v", from, seen[from], want)
				}
				delete(seen, from)
			}
			if len(seen) > 0 {
				t.Errorf("packets of others: %v", seen)
			}
		})
	}
}
