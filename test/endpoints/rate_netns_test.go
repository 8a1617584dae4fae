package endpoints

import (
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/iounit"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/tap"
	"github.com/splitnic/splitnic/tap/steer"
	"github.com/splitnic/splitnic/vnet"
)

// tapped is a host whose netdevice is a TAP device.
type tapped struct {
	name, ns, addr string
	host           *host.Host
	run            *running
}

// tapHost starts a host with its own key and IP address.
func (s *shared) tapHost(name string, key *session.Key, addr string) *tapped {
	s.t.Helper()
	h := &tapped{name: name, ns: testenv.NetNS(s.t), addr: addr}
	dev, err := tap.Open(tap.Config{Name: "sn0", NetNS: h.ns, Queues: 1, Offloads: vnet.AllOffloads})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			s.t.Error(err)
		}
	})
	if err := dev.Up(); err != nil {
		s.t.Fatal(err)
	}
	_, h.host, h.run = s.world.host(name, func(c *host.Config) {
		c.Netdev, c.Security = host.TAP(dev), s.world.security(key, s.world.unitKey)
	})
	testenv.Eventually(s.t, func() bool { return h.host.Status().State == host.Connected }, "%s being connected", name)
	testenv.Eventually(s.t, func() bool { return find(s.unit, name) != nil }, "the I/O unit having %s", name)
	testenv.Address(s.t, h.ns, "sn0", addr+"/24")
	return h
}

// find returns the status of a host's session, nil if it has none.
func find(u *iounit.Unit, name string) *iounit.HostStatus {
	for _, h := range u.Status().Hosts {
		if h.Name == name {
			return &h
		}
	}
	return nil
}

// put sets a policy, and expects that it ends no session.
func put(t *testing.T, u *iounit.Unit, text string) {
	t.Helper()
	if n := u.SetPolicy(rules(t, text)); n != 0 {
		t.Errorf("%d sessions end by %q", n, text)
	}
}

// overdraft is how many bytes can pass in one direction in addition to the rate: the saved burst,
// and the rest of the last frame that passes.
const overdraft = 2<<16 + 1<<16

// load moves n bytes to the LAN, from the LAN, or both at once. For each direction it expects that
// no more bytes have passed than rate permits in the time that this took; or, if rate is 0, that no
// frame was held back. A busy machine may take as long as a rate would.
func (s *shared) load(h *tapped, n int64, rate int, ways ...string) {
	s.t.Helper()
	var wg sync.WaitGroup
	for i, way := range []struct {
		name, from, to, addr string
		counted              func(*iounit.HostStatus) (passed, limited uint64)
	}{
		{"tx", h.ns, s.lanNS, lanAddr, func(st *iounit.HostStatus) (uint64, uint64) {
			return st.Statistics.TxBytes, st.TxLimited
		}},
		{"rx", s.lanNS, h.ns, h.addr, func(st *iounit.HostStatus) (uint64, uint64) {
			return st.Statistics.RxBytes, st.RxLimited
		}},
	} {
		if !slices.Contains(ways, way.name) {
			continue
		}
		wg.Go(func() {
			begun := time.Now()
			passed, limited := way.counted(find(s.unit, h.name))
			if err := transfer(way.from, way.to, way.addr, uint64(i), n); err != nil {
				s.t.Errorf("%s to %s: %v", h.name, way.addr, err)
			}
			bytes, held := way.counted(find(s.unit, h.name))
			bytes, held = bytes-passed, held-limited
			took := time.Since(begun)
			if most := float64(rate)/8*took.Seconds() + overdraft; rate > 0 && float64(bytes) > most {
				s.t.Errorf("%s: %d bytes to %s in %v; %d bit/s allow %.0f", h.name, bytes, way.addr, took, rate, most)
			}
			if rate == 0 && held > 0 {
				s.t.Errorf("%s: held back %d times on the way to %s, without a rate", h.name, held, way.addr)
			}
		})
	}
	wg.Wait()
}

// TestNetnsPolicyRate limits the rates of one of two hosts during its session, and stops the host
// while its frames wait for the limit.
func TestNetnsPolicyRate(t *testing.T) {
	for _, kind := range []string{"macvtap", "packet"} {
		t.Run(kind, func(t *testing.T) {
			s := newShared(t, kind, "")
			testenv.Address(t, s.lanNS, "lan0", lanAddr+"/24")
			other := s.world.key()
			s.world.trusts("alpha="+s.world.hostKey.Fingerprint().String(), "beta="+other.Fingerprint().String())
			a, b := s.tapHost("alpha", s.world.hostKey, "10.78.0.2"), s.tapHost("beta", other, "10.78.0.3")
			const (
				rate = 2_000_000
				n    = 1 << 20 // bytes of data in each direction
			)
			s.load(a, n, 0, "tx", "rx")

			// One limit at a time: delayed acknowledgements slow down the other direction.
			for _, bounded := range []string{"tx", "rx"} {
				put(t, s.unit, fmt.Sprintf("hosts: {alpha: {max-%s-rate: %d}}", bounded, rate))
				var wg sync.WaitGroup
				wg.Go(func() { s.load(a, n, rate, bounded) })
				s.load(b, n, 0, "tx", "rx")
				wg.Wait()
			}
			put(t, s.unit, fmt.Sprintf("hosts: {alpha: {max-tx-rate: %d, max-rx-rate: %d}}", rate, 2*rate))
			if st := find(s.unit, "alpha"); st.TxLimited == 0 || st.RxLimited == 0 || st.MaxTxRate != rate ||
				st.MaxRxRate != 2*rate {
				t.Errorf("the status: %d and %d bit/s, limited %d times and %d times", st.MaxTxRate, st.MaxRxRate, st.TxLimited,
					st.RxLimited)
			}
			if st := find(s.unit, "beta"); st.TxLimited+st.RxLimited != 0 || st.MaxTxRate+st.MaxRxRate != 0 {
				t.Errorf("the status of the other host: %+v", st)
			}

			put(t, s.unit, "")
			s.load(a, n, 0, "tx", "rx")

			// The waiting frames would take minutes to pass at this rate.
			put(t, s.unit, "hosts: {alpha: {max-tx-rate: 100k, max-rx-rate: 100k}}")
			begun := time.Now()
			before := a.host.Status().Traffic.Channels[0].TxBytes
			flood(t, a)
			sent := a.host.Status().Traffic.Channels[0].TxBytes - before
			if find(s.unit, "alpha").Memory == 0 || sent < 256<<10 {
				t.Errorf("only %d bytes are on their way", sent)
			}
			if err := a.run.stop(); err != nil {
				t.Error(err)
			}
			testenv.Eventually(t, func() bool { return find(s.unit, "alpha") == nil }, "the session's end")
			if took := time.Since(begun); took.Seconds() > float64(sent)*8/100e3 {
				t.Errorf("the session has ended after %v, when everything had passed", took)
			}
			s.load(b, n, 0, "tx", "rx")
			if st := find(s.unit, "beta"); st.TxLimited+st.RxLimited != 0 || b.host.Status().Sessions != 1 {
				t.Errorf("the other host: %+v", st)
			}
		})
	}
}

// flood sends datagrams to the LAN until the host has no credit for more.
func flood(t *testing.T, h *tapped) {
	t.Helper()
	var c net.Conn
	err := netns.Do(h.ns, func() (err error) {
		c, err = net.Dial("udp", net.JoinHostPort(lanAddr, "9"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	data := make([]byte, 1400)
	starved := h.host.Status().Traffic.Channels[0].TxNoCredit
	testenv.Eventually(t, func() bool {
		for range 500 {
			_, _ = c.Write(data) // fails if the queue is full, or because no socket listens
		}
		return h.host.Status().Traffic.Channels[0].TxNoCredit > starved
	}, "a host without credit")
}

// TestNetnsLatencyRate loads a host that has a latency channel up to its rate limit, and expects
// that latency-sensitive frames do not wait.
func TestNetnsLatencyRate(t *testing.T) {
	classes := steer.DefaultClasses()
	s := newSteeredTestbed(t, "macvtap", 1500, 2, 4, &classes)
	put(t, s.unit, "default: {max-tx-rate: 20M, max-rx-rate: 20M}")
	var wg sync.WaitGroup
	for i, way := range [][3]string{{s.hostNS, s.lanNS, lanAddr}, {s.lanNS, s.hostNS, "10.78.0.2"}} {
		wg.Go(func() {
			if err := transfer(way[0], way[1], way[2], uint64(i), 2<<20); err != nil {
				t.Errorf("to %s: %v", way[2], err)
			}
		})
	}
	if err := echo(s.hostNS, "10.78.0.2", s.lanNS, lanAddr, 100, 100); err != nil {
		t.Error(err)
	}
	wg.Wait()
	_, unit := s.channels(t)
	if bulk := unit[0]; bulk.TxThrottled == 0 || bulk.RxThrottled == 0 {
		t.Errorf("the data channel was held back %d times and %d times", bulk.TxThrottled, bulk.RxThrottled)
	}
	if l := unit[1]; !l.Latency || l.TxThrottled+l.RxThrottled != 0 || l.TxFrames < 100 || l.RxFrames < 100 {
		t.Errorf("the latency channel: %+v", l)
	}
}
