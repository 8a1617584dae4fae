package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/statussock"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/direct"
	"github.com/splitnic/splitnic/splitdrv/host"
)

// thirdDevice is the RDMA device of hosts that are not on hostDevice.
const thirdDevice = "snrxe2"

// Flags of the hosts of tests with direct connections.
var (
	onThird  = []string{"--device", thirdDevice, "--advanced.direct-grace", "30s"}
	onSecond = []string{"--advanced.direct-grace", "30s"}
)

// newDirectFixture returns a fixture for direct connections. The policy permits them if permitted
// is true. The I/O unit has hosts connect at their first packet.
func newDirectFixture(t *testing.T, permitted bool) *fixture {
	t.Helper()
	testenv.NeedRDMA(t, 3)
	r := newFixture(t, "macvtap", "--advanced.direct-after", "0")
	r.direct(permitted)
	return r
}

// direct sets whether the policy permits direct connections.
func (r *fixture) direct(permitted bool) {
	r.t.Helper()
	word := map[bool]string{true: "yes", false: "no"}[permitted]
	r.put("default: {direct: " + word + ", max-sessions: 64}\n")
}

// directs returns the part of the host's status about direct connections.
func (n *node) directs() (s direct.Status) {
	n.t.Helper()
	eventually(n.t, func() bool {
		raw, err := statussock.Read(n.t.Context(), n.sock)
		var all host.Status
		if err == nil {
			err = json.Unmarshal(raw, &all)
		}
		s = all.Direct
		return err == nil
	}, "a status from %s", n.sock)
	return s
}

// established reports whether the host has an established direct connection with peer.
func (n *node) established(peer *node) bool {
	mac, err := protocol.ParseMAC(peer.mac())
	if err != nil {
		n.t.Fatal(err)
	}
	return slices.ContainsFunc(n.directs().Connections, func(c direct.ConnectionStatus) bool {
		return slices.Contains(c.MACs, mac) && c.State == direct.Established
	})
}

// directly waits until two hosts have a direct connection.
func directly(a, b *node) {
	a.t.Helper()
	eventually(a.t, func() bool { return a.established(b) && b.established(a) },
		"a direct connection of %s and %s", a.name, b.name)
}

// indirectly waits until hosts have no direct connections.
func indirectly(all ...*node) {
	for _, n := range all {
		n.t.Helper()
		eventually(n.t, func() bool { return len(n.directs().Connections) == 0 }, "the end of direct connections of %s",
			n.name)
	}
}

// exchange sends data between two hosts and checks it: echo requests of several sizes, and TCP
// connections both ways.
func exchange(t *testing.T, a, b *node, bytes int64) {
	t.Helper()
	for _, size := range []int{0, 1472, 1473, 20000} {
		ping(t, a.ns, b.addr(), 1, size)
		ping(t, b.ns, a.addr6(), 1, size)
	}
	testenv.Exchange(t, b.ns, b.addr(), a.ns, bytes)
}

// through returns the number of bytes that have passed the I/O unit, by its status, and the number
// of bytes that have passed the hosts' netdevices on its card.
func (r *fixture) through() (unit, lan uint64) {
	r.t.Helper()
	for _, h := range r.unit.unitStatus().Hosts {
		if h.Traffic == nil {
			continue
		}
		for _, c := range h.Traffic.Channels {
			unit += c.RxBytes + c.TxBytes
		}
	}
	for _, name := range testenv.Links(r.t, r.card) {
		if l := testenv.Link(r.t, r.card, name); l != nil && l.Attrs().Statistics != nil {
			lan += l.Attrs().Statistics.RxBytes + l.Attrs().Statistics.TxBytes
		}
	}
	return unit, lan
}

// nothingLost checks that direct connections, which have all ended normally, neither lost nor
// dropped a frame. Frames that were on their way may be uncertain: revocation does not wait for a
// slow machine.
func (n *node) nothingLost() {
	n.t.Helper()
	d := n.directs()
	if c := d.Total; c.Lost+c.Full+c.Source+c.Destination+c.VLAN+c.Malformed != 0 || c.Ended == 0 ||
		c.InFrames == 0 || c.OutFrames == 0 {
		n.t.Errorf("%s: %+v", n.name, d)
	}
}

// TestRDMADirectPath changes the policy while two hosts on different devices exchange data: first
// through the I/O unit, then directly, then through the I/O unit again. Data that is exchanged
// directly must not pass the I/O unit or its card, and a TCP connection that is in use all the
// time must not miss any data.
func TestRDMADirectPath(t *testing.T) {
	newDirectFixture(t, false).inEachMode(t, func(t *testing.T, r *fixture) {
		const bytes = 1 << 18
		a, b := r.newHost(t), r.newHost(t, onThird...)
		a.ready()
		b.ready()
		exchange(t, a, b, bytes)
		if d := a.directs(); len(d.Connections) != 0 || d.Total.Ended != 0 {
			t.Errorf("a direct connection that the policy does not permit: %+v", d)
		}
		s := startStreamingTo(t, b.ns, b.addr(), a.ns, streamPause)
		s.proceeds(t)
		r.direct(true)
		directly(a, b)
		s.proceeds(t)
		unit, lan := r.through()
		exchange(t, a, b, bytes)
		s.proceeds(t)
		nowUnit, nowLAN := r.through()
		// Some broadcasts and multicasts still pass.
		if nowUnit-unit > bytes/16 || nowLAN-lan > bytes/16 {
			t.Errorf("%d bytes passed the I/O unit and %d its netdevices, of %d exchanged directly", nowUnit-unit,
				nowLAN-lan, 2*bytes)
		}
		r.direct(false)
		indirectly(a, b)
		s.proceeds(t)
		exchange(t, a, b, bytes)
		if again, _ := r.through(); again-nowUnit < 2*bytes {
			t.Errorf("%d bytes passed the I/O unit without a direct connection", again-nowUnit)
		}
		s.finish(t)
		a.nothingLost()
		b.nothingLost()
		noBadPackets(t, a.ns, b.ns)
	})
}

// TestRDMADirectKill kills first one of two hosts with a direct connection, then their I/O unit,
// while a TCP connection is in use. Each time the TCP connection has to continue, and the hosts
// have to have a direct connection again.
func TestRDMADirectKill(t *testing.T) {
	r := newDirectFixture(t, true)
	a, b := r.managedHost(t, onSecond...), r.managedHost(t, onThird...)
	s := startStreamingTo(t, b.ns, b.addr(), a.ns, streamPause)
	s.proceeds(t)
	directly(a, b)
	s.proceeds(t)

	b.kill()
	eventually(t, func() bool { return !a.established(b) }, "the end of the direct connection with a host that was killed")
	b.start()
	directly(a, b)
	s.proceeds(t)

	id := a.directs().Connections[0].ID
	r.unit.kill()
	r.startUnit()
	eventually(t, func() bool { return len(r.unit.unitStatus().Hosts) == 2 }, "both hosts at the I/O unit's successor")
	s.proceeds(t)
	directly(a, b)
	t.Logf("the connection of before is kept: %t", a.directs().Connections[0].ID == id)
	s.finish(t)
}

// queuePairs returns the numbers of queue pairs on the devices of the two hosts.
func queuePairs(t testing.TB) (n [2]uint64) {
	t.Helper()
	all, err := netlink.RdmaResourceList()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		if i := slices.Index([]string{hostDevice, thirdDevice}, r.Name); i >= 0 {
			n[i] = r.RdmaResourceSummaryEntries["qp"]
		}
	}
	return n
}

// TestRDMADirectRevoked forbids direct connections by the policy several times, while a stream is
// in use, and then revokes the key of one of the hosts. The queue pairs of the direct connection
// have to disappear: from both devices after the policy's change, and from the other host's
// device after the revocation. The test logs how long after the signal that was.
func TestRDMADirectRevoked(t *testing.T) {
	testenv.NeedRDMA(t, 3)
	files := t.TempDir()
	second, revoked := filepath.Join(files, "second"), filepath.Join(files, "revoked")
	if err := os.WriteFile(revoked, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	print := changeKey(t, needFabric(t), second)
	r := newFixture(t, "macvtap", "--advanced.direct-after", "0", "--trust", "second="+print, "--revoked", revoked)
	r.direct(false)
	a, b := r.newHost(t), r.newHost(t, slices.Concat(onThird, []string{"--key", second})...)
	a.ready()
	b.ready()
	without := queuePairs(t)
	// gone makes the I/O unit reload, and waits until the first devices, as many as it is told,
	// have as many queue pairs as without a direct connection.
	gone := func(devices int) time.Duration {
		t.Helper()
		began := time.Now()
		if err := r.unit.cmd.Process.Signal(unix.SIGHUP); err != nil {
			t.Fatal(err)
		}
		var n [2]uint64
		eventually(t, func() bool {
			n = queuePairs(t)
			return slices.Equal(n[:devices], without[:devices])
		}, "as many queue pairs as before, %d", without)
		return time.Since(began)
	}
	s := startStreamingTo(t, b.ns, b.addr(), a.ns, streamPause)
	for range 3 {
		r.direct(true)
		directly(a, b)
		s.proceeds(t)
		if n := queuePairs(t); n[0] <= without[0] || n[1] <= without[1] {
			t.Fatalf("%d queue pairs with a direct connection, %d without", n, without)
		}
		r.write("default: {direct: no, max-sessions: 64}\n")
		t.Logf("forbidden by the policy: queue pairs gone after %v", gone(2))
		indirectly(a, b)
		s.proceeds(t)
	}
	r.direct(true)
	directly(a, b)
	s.finish(t)
	if err := os.WriteFile(revoked, []byte(print+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// The host with the revoked key keeps trying to open a session, with queue pairs that are
	// never connected. So only the other host's device is checked.
	t.Logf("key revoked: queue pairs gone after %v", gone(1))
}

// TestRDMADirectThree exchanges data between random pairs of three hosts, three pairs at a time.
// Two of the hosts share a device. In the end each host has to have a direct connection with both
// others.
func TestRDMADirectThree(t *testing.T) {
	r := newDirectFixture(t, true)
	hosts := []*node{r.newHost(t), r.newHost(t, onThird...), r.newHost(t)}
	for _, h := range hosts {
		h.ready()
	}
	random := rand.New(rand.NewPCG(1, 2))
	for round := range 3 {
		var wg sync.WaitGroup
		for range 3 {
			i := random.IntN(3)
			a, b := hosts[i], hosts[(i+1+random.IntN(2))%3]
			wg.Go(func() {
				testenv.Exchange(t, b.ns, b.addr(), a.ns, 256<<10)
				ping(t, a.ns, b.addr6(), 2, 4000)
			})
		}
		wg.Wait()
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
	for i, a := range hosts {
		b := hosts[(i+1)%3]
		ping(t, a.ns, b.addr(), 2, 56)
		directly(a, b)
	}
	for _, h := range hosts {
		if n := len(h.directs().Connections); n != 2 {
			t.Errorf("%s has %d direct connections: %s", h.name, n, fmt.Sprint(h.directs().Connections))
		}
	}
	noBadPackets(t, hosts[0].ns, hosts[1].ns, hosts[2].ns)
}
