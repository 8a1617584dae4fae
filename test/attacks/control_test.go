//go:build cgo

package attacks

import (
	"context"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/vnet"
)

// broadcast returns a valid broadcast frame of the host with this address.
func broadcast(from protocol.MAC) []byte {
	f := make([]byte, vnet.HdrLen+60)
	copy(f[vnet.HdrLen:], "\xff\xff\xff\xff\xff\xff")
	copy(f[vnet.HdrLen+6:], from[:])
	copy(f[vnet.HdrLen+12:], "\x88\xb5")
	return f
}

// hostStatistic returns a counter of a host's present session.
func (r *fixture) hostStatistic(host, name string) uint64 {
	r.t.Helper()
	for _, h := range r.status().Hosts {
		if h.Name == host {
			return h.Statistics[name]
		}
	}
	return 0
}

// TestRDMAAttackControl lets a host misuse its control channel, the elements that it may write to,
// and those that it lends.
func TestRDMAAttackControl(t *testing.T) {
	r := newFixture(t)
	to := r.attacker()
	r.sub("requests without waiting", func(t *testing.T) {
		counted := r.since(broken("too-many-requests"))
		s, err := Open(t.Context(), to, "attacker", protocol.ModeImm)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if err := Flood(t.Context(), s, 900); err != nil {
			t.Fatal(err)
		}
		r.eventually(func() bool { return counted() == 1 }, "a violation counted")
		r.unharmed()
	})
	r.sub("requests at full speed", func(t *testing.T) { r.requests(t, to) })
	r.sub("replay", func(t *testing.T) { r.replay(t, to) })
	r.sub("hoarding", func(t *testing.T) { r.hoarding(t, to) })
}

// requests sends requests as fast as they are answered.
func (r *fixture) requests(t *testing.T, to Target) {
	s, err := Open(t.Context(), to, "attacker", protocol.ModeImm)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, tt := range []struct {
		t    protocol.CfgType
		data []byte
		n    int
		want protocol.CfgStatus
	}{
		{protocol.CfgKeepAlive, nil, 100, protocol.CfgOK},
		{protocol.CfgStatsRead, nil, 50, protocol.CfgOK},
		{protocol.CfgReset, nil, 10, protocol.CfgOK},
		{protocol.CfgMAC, r.macOf("honest"), 50, protocol.CfgDenied},
	} {
		for range tt.n {
			if status, err := s.Request(t.Context(), tt.t, tt.data); err != nil || status != tt.want {
				t.Fatalf("a request about %v is answered with %v: %v", tt.t, status, err)
			}
		}
		r.bystander.goesOn()
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	r.unharmed()
}

// macOf returns a host's MAC address as the data of a request.
func (r *fixture) macOf(host string) []byte {
	r.t.Helper()
	for _, h := range r.status().Hosts {
		if h.Name == host {
			mac, err := net.ParseMAC(h.MAC)
			if err != nil {
				r.t.Fatal(err)
			}
			return protocol.AppendMAC(nil, protocol.MAC(mac))
		}
	}
	r.t.Fatalf("no host %s", host)
	return nil
}

// replay indicates elements as written that were not, and one of them twice. Their contents belong
// to the attacker's own session.
func (r *fixture) replay(t *testing.T, to Target) {
	counted := r.since(broken("not-lent"))
	s, err := Open(t.Context(), to, "attacker", protocol.ModeIndicate)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const n = 3
	for i := range uint32(n) {
		of := protocol.Indication{Pool: s.Pools[0].Ref, Element: i, Length: 70}
		if err := s.Send(protocol.AppendBufferRDMAIndicate(nil, 0, of)); err != nil {
			t.Fatal(err)
		}
	}
	r.eventually(func() bool { return r.hostStatistic("attacker", "tx_source") == n },
		"%d frames counted whose source is not the host's", n)
	if n := r.hostStatistic("attacker", "tx_frames"); n != 0 {
		t.Errorf("%d frames that were never written reached the LAN", n)
	}
	of := protocol.Indication{Pool: s.Pools[0].Ref, Element: 200, Length: 70}
	if err := s.Send(protocol.AppendBufferRDMAIndicate(nil, 0, of, of)); err != nil {
		t.Fatal(err)
	}
	if bye, err := s.Ended(); err != nil || bye == nil || bye.Code != "protocol" {
		t.Errorf("the I/O unit says %v: %v", bye, err)
	}
	r.eventually(func() bool { return counted() == 1 }, "a violation counted")
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	r.unharmed()
}

// lend lends the I/O unit a pool of lentElements, of which no element is ever returned.
func (s *Session) lend() error {
	return s.Send(protocol.AppendBufferRecvPool(nil, 0, protocol.Pool{
		Ref: 3, Elements: lentElements, ElementSize: lentElement, Context: protocol.PoolContext(1, 0),
		RKey: s.Region.RKey(), Addr: s.At(s.LentAt()),
	}))
}

// taken handles all available completions and returns the number of transfers from the I/O unit.
func (s *Session) taken() (int, error) {
	for {
		if n, err := s.Poll(); err != nil || n == 0 {
			return s.Arrived, err
		}
	}
}

// hoarding lets a host receive frames without returning any element, and expects that it gets no
// more frames, and that other hosts get theirs.
func (r *fixture) hoarding(t *testing.T, to Target) {
	s, err := Open(t.Context(), to, "attacker", protocol.ModeImm)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.lend(); err != nil {
		t.Fatal(err)
	}
	const ip = "10.77.0.99"
	testenv.Run(t, r.lan, "ip", "neigh", "add", ip, "lladdr", s.Welcome.MAC.String(), "dev", "lan0")
	var c *net.UDPConn
	err = netns.Do(r.lan, func() (err error) {
		c, err = net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.MustParseAddrPort(ip+":9")))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	// Frames that wait for the attacker are charged to the sender's socket. Its send buffer has to
	// have room for so many that the attacker's port drops frames.
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var optErr error
	err = raw.Control(func(fd uintptr) {
		optErr = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUFFORCE,
			64<<20)
	})
	if err != nil || optErr != nil {
		t.Fatal(err, optErr)
	}
	starved := func() bool {
		for _, h := range r.status().Hosts {
			if h.Name == "attacker" && len(h.Traffic.Channels) == 1 {
				g := h.Traffic.Channels[0].Remote
				return g.Elements == lentElements && g.Available == 0 && h.Statistics["rx_dropped"] > 0
			}
		}
		return false
	}
	r.eventually(func() bool {
		for range 1000 {
			if _, err := c.Write(make([]byte, 1000)); err != nil {
				t.Fatal(err)
			}
		}
		r.bystander.goesOn()
		if _, err := s.taken(); err != nil {
			t.Fatal(err)
		}
		return starved()
	}, "frames counted for which the attacker leaves no room")
	if err := s.Alive(t.Context()); err != nil {
		t.Errorf("the attacker's own session: %v", err)
	}
	if n, err := s.taken(); err != nil || n > lentElements {
		t.Errorf("%d transfers to %d elements: %v", n, lentElements, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	r.unharmed()
}

// TestRDMAAttackClasses runs each class of attacks until two attacks are complete, and then until
// the honest host's connection has made progress.
func TestRDMAAttackClasses(t *testing.T) {
	r := newFixture(t)
	to := r.attacker()
	for _, class := range Classes() {
		r.sub(class.Name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var done atomic.Uint64
			result := make(chan error, 1)
			go func() { result <- class.Run(ctx, to, &done) }()
			r.eventually(func() bool {
				select {
				case err := <-result:
					t.Fatalf("it has ended: %v", err)
				default:
				}
				return done.Load() >= 2
			}, "two of what it does")
			r.bystander.goesOn()
			cancel()
			if err := <-result; err != nil {
				t.Error(err)
			}
			r.unharmed()
		})
	}
	s := r.status()
	for name, n := range map[string]uint64{
		"stalled or unfinished connections":    s.Refusals["too-many-handshakes-address"] + s.Refusals["gone"],
		"strangers":                            s.Refusals["untrusted"],
		"sessions ended with their queue pair": s.Ended["queue-pair"],
		"sessions ended for too many requests": s.Violations["too-many-requests"],
	} {
		if n == 0 {
			t.Errorf("no %s are counted: %+v", name, s)
		}
	}
}
