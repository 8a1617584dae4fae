package e2e

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/testenv"
)

// TestRDMAHosts shares one network card among two hosts, then eight. All have to reach the LAN and
// each other. It checks the status, MAC addresses that are requested or in use, and that a host
// that leaves does not affect the others.
func TestRDMAHosts(t *testing.T) {
	r := newFixture(t, "macvtap")
	var hosts []*node
	for _, n := range []int{2, 8} {
		t.Run(fmt.Sprint(n, " hosts"), func(t *testing.T) {
			// The hosts belong to the whole test, not to the sub-test.
			started := len(hosts)
			for len(hosts) < n {
				hosts = append(hosts, r.newHost(r.t))
			}
			for _, h := range hosts[started:] {
				h.ready()
			}
			everybodyPings(t, hosts)
			s := r.unit.unitStatus()
			if len(s.Hosts) != n {
				t.Fatalf("the status shows %d hosts: %+v", len(s.Hosts), s.Hosts)
			}
			macs := map[string]bool{}
			shown := map[string]unitHost{}
			for _, h := range s.Hosts {
				shown[h.Name] = h
				macs[h.MAC] = true
			}
			if len(macs) != n {
				t.Errorf("%d hosts have %d MAC addresses", n, len(macs))
			}
			for _, h := range hosts {
				u, ok := shown[h.name]
				if !ok {
					t.Errorf("the status does not show %s", h.name)
					continue
				}
				if own := h.mac(); u.MAC != own || u.MTU != 1500 || u.Fingerprint != r.keys.hostPrint {
					t.Errorf("the status of %s, with %s, is %+v", h.name, own, u)
				}
				// These are at least the host's own echo requests and their answers.
				if u.Traffic == nil || u.Traffic.Channels[0].RxFrames < 4 || u.Traffic.Channels[0].TxFrames < 4 {
					t.Errorf("traffic of %s: %+v", h.name, u.Traffic)
				}
			}
		})
	}
	if t.Failed() {
		return
	}
	t.Run("host to host", func(t *testing.T) {
		a, b := hosts[0], hosts[len(hosts)-1]
		testenv.Exchange(t, a.ns, a.addr(), b.ns, 1<<20)
		ping(t, a.ns, b.addr6(), 2, 20000)
		noBadPackets(t, a.ns, b.ns)
	})
	t.Run("same MAC address", func(t *testing.T) {
		wanted := hosts[0].mac()
		n := r.newHost(t, "--mac", wanted)
		select {
		case <-n.done:
		case <-time.After(patience):
			t.Fatal("a second host with the same MAC address was not refused")
		}
		n.failed(1, wanted, "hosts") // the key's name; all hosts have the same key
		ping(t, hosts[0].ns, addr(0), 2, 56)
	})
	t.Run("wanted MAC address", func(t *testing.T) {
		const wanted = "02:00:5e:10:00:07"
		n := r.host(t, "--mac", wanted)
		if got := n.mac(); got != wanted {
			t.Errorf("sn0 has %s and not %s", got, wanted)
		}
		ping(t, n.ns, addr(0), 2, 56)
	})
	t.Run("one leaves", func(t *testing.T) {
		// The other hosts' traffic has to continue and their sessions have to survive.
		stays, leaves := hosts[0], hosts[1]
		sessions := map[string]int{}
		for _, h := range hosts[2:] {
			sessions[h.name] = h.hostStatus().Sessions
		}
		var wg sync.WaitGroup
		wg.Go(func() { ping(t, stays.ns, addr(0), 100, 1000) })
		leaves.stop()
		wg.Wait()
		eventually(t, func() bool { return len(r.unit.unitStatus().Hosts) == len(hosts)-1 }, "a status with one host less")
		others := append([]*node{stays}, hosts[2:]...)
		everybodyPings(t, others)
		for _, h := range hosts[2:] {
			if got := h.hostStatus().Sessions; got != sessions[h.name] {
				t.Errorf("%s had to connect again: %d sessions after %d", h.name, got, sessions[h.name])
			}
		}
	})
}

// everybodyPings makes all hosts ping the LAN and the next host at the same time, over IPv4 and
// IPv6.
func everybodyPings(t *testing.T, hosts []*node) {
	t.Helper()
	var wg sync.WaitGroup
	for i, h := range hosts {
		next := hosts[(i+1)%len(hosts)]
		wg.Go(func() {
			ping(t, h.ns, addr(0), 3, 1000)
			ping(t, h.ns, next.addr(), 3, 4000)
			ping(t, h.ns, addr6(0), 3, 56)
			ping(t, h.ns, next.addr6(), 3, 56)
		})
	}
	wg.Wait()
}
