package claims

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/iounit"
	"github.com/splitnic/splitnic/splitdrv/iounit/policy"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/tap"
	"github.com/splitnic/splitnic/vnet"
)

// testbed is the whole driver on recorded devices: the host module driver with its
// netdevice sn0 in one network namespace, the I/O unit module driver with the
// network card eth1 in a second, and the LAN behind the card in a third.
type testbed struct {
	*observed
	hostNS, cardNS, lanNS string
	host                  *host.Host
	unit                  *iounit.Unit
	end                   map[string]func() // ends a side, before the test does
}

const (
	hostAddr = "10.79.0.2"
	lanAddr  = "10.79.0.1"
	ownAddr  = "10.79.0.3" // of the I/O unit's own machine, on the bridge
	onCard   = "macvtap:eth1"
	onBridge = "tap:br0"
	// slow is the value of all time-outs of the endpoints. No test is about a time-out, and on a
	// slow machine an attempt that times out would begin again.
	slow = time.Minute
)

// newTestbed starts both endpoints and waits until the netdevice works.
func newTestbed(t *testing.T, on fabricOf) *testbed {
	t.Helper()
	return newTestbedOn(t, on, onCard)
}

// newTestbedOn is newTestbed with another LAN than the card: br0 is a bridge with the card as a
// port, and has the address ownAddr.
func newTestbedOn(t *testing.T, on fabricOf, spec string) *testbed {
	t.Helper()
	testenv.NeedTUN(t)
	s := &testbed{hostNS: testenv.NetNS(t)}
	s.cardNS, s.lanNS = newLAN(t, lanAddr)
	if spec == onBridge {
		testenv.NeedTools(t, "ip")
		testenv.Run(t, s.cardNS, "ip", "link", "add", "br0", "up", "type", "bridge")
		testenv.Run(t, s.cardNS, "ip", "link", "set", "eth1", "master", "br0")
		testenv.Address(t, s.cardNS, "br0", ownAddr+"/24")
	}
	tp, devs := openDevices(t, on)
	s.observed = &observed{trace: tp, t: t, qpns: make(map[string][]uint32)}
	s.until = func(cond func() error) { t.Helper(); poll(t, cond) }
	hostKey, unitKey := newKey(t), newKey(t)
	unit := on.startUnit(t, devs[unitSide], "unit", s.cardNS, spec, security(t, unitKey, hostKey))
	h, endHost := on.startHost(t, devs[hostSide], "alpha", "sn0", s.hostNS, unit.addr, security(t, hostKey, unitKey))
	s.host, s.unit, s.end = h, unit.Unit, map[string]func(){hostSide: endHost, unitSide: unit.end}
	carrier(t, s.hostNS, "sn0", hostAddr)
	tp.dropTrials()
	for _, side := range sides {
		for _, e := range s.pick(side, qpMade) {
			s.qpns[side] = append(s.qpns[side], e.qpn)
		}
	}
	return s
}

// newLAN makes a network card, eth1 in its own namespace, and a LAN behind the card with a machine
// at addr.
func newLAN(t *testing.T, addr string) (cardNS, lanNS string) {
	t.Helper()
	cardNS, lanNS = testenv.NetNS(t), testenv.NetNS(t)
	testenv.Veth(t, cardNS, "eth1", lanNS, "lan0")
	testenv.Address(t, lanNS, "lan0", addr+"/24")
	return cardNS, lanNS
}

// carrier waits until a host's netdevice works, and gives it an address.
func carrier(t *testing.T, ns, dev, addr string) {
	t.Helper()
	testenv.Eventually(t, func() bool { return testenv.Link(t, ns, dev).Attrs().OperState == netlink.OperUp },
		"%s has no carrier", dev)
	testenv.Address(t, ns, dev, addr+"/24")
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func newKey(t *testing.T) *session.Key { t.Helper(); return must(session.GenerateKey())(t) }

// security returns the security configuration of a side that has the key own and trusts peer.
func security(t *testing.T, own, peer *session.Key) *session.Security {
	t.Helper()
	trust := &session.Trust{}
	if err := trust.Add(peer.Fingerprint().String()); err != nil {
		t.Fatal(err)
	}
	return must(session.NewSecurity(own, "", trust))(t)
}

// run runs an endpoint until end is called, or the test ends.
func run(t *testing.T, what string, run func(context.Context) error) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	end = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("%s: %v", what, err)
		}
	})
	t.Cleanup(end)
	return end
}

// messaging returns the configuration of one endpoint for the setting. The handshake determines the
// rest.
func (on fabricOf) messaging(dev fabric.Device) messaging.Config {
	c := messaging.Config{PeerTimeout: slow, FlushTime: slow, Device: dev}
	on.configure(&c)
	return c
}

// startedUnit is a running I/O unit.
type startedUnit struct {
	*iounit.Unit
	addr string
	end  func()
}

// startUnit starts an I/O unit with the LAN spec in cardNS.
func (on fabricOf) startUnit(
	t *testing.T, dev fabric.Device, name, cardNS, spec string, sec *session.Security,
) startedUnit {
	t.Helper()
	u := must(iounit.New(iounit.Config{
		Name: name, Software: "test", Device: dev,
		OpenLAN: func(mac net.HardwareAddr, queues int) (lan.Interface, error) {
			return lan.Open(spec, lan.Config{NetNS: cardNS, MAC: mac, Queues: queues, Offloads: vnet.AllOffloads})
		},
		LinkState: func() (lan.LinkState, error) {
			_, nic, _ := strings.Cut(spec, ":")
			info, err := lan.LinkInfo(nic, cardNS)
			return info.LinkState, err
		},
		Policy:    must(policy.Parse("policy", []byte("default: {macs: any}")))(t), // another address is set
		Messaging: on.messaging(dev), Log: slog.New(slog.DiscardHandler),
	}))(t)
	ln := must(session.Listen("127.0.0.1:0", session.ServerConfig{
		Security: sec, HandshakeTimeout: slow, PeerTimeout: slow, Burst: u.Burst, Rejected: u.Rejected,
	}))(t)
	end := run(t, name, func(ctx context.Context) error { return errors.Join(u.Run(ctx, ln), ln.Close()) })
	return startedUnit{u, ln.Addr().String(), end}
}

// startHost starts a host with its own netdevice.
func (on fabricOf) startHost(
	t *testing.T, dev fabric.Device, name, netdev, ns, unit string, sec *session.Security,
) (h *host.Host, end func()) {
	t.Helper()
	sn := must(tap.Open(tap.Config{Name: netdev, NetNS: ns, Queues: 1, Offloads: vnet.AllOffloads}))(t)
	t.Cleanup(func() {
		if err := sn.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := sn.Up(); err != nil {
		t.Fatal(err)
	}
	h = must(host.New(host.Config{
		Name: name, Software: "test", IOUnits: []string{unit}, Security: sec, Device: dev,
		Netdev: host.TAP(sn), Offloads: vnet.AllOffloads,
		Messaging: on.messaging(dev), HandshakeTimeout: slow,
		RetryMin: time.Millisecond, RetryMax: 10 * time.Millisecond,
		Log: slog.New(slog.DiscardHandler),
	}))(t)
	return h, run(t, name, h.Run)
}

// mark is the pattern in the data of ping packets by which a test finds them.
const mark = "splitnic"

// ping pings addr from the network namespace ns, with count marked packets of n bytes of data.
func ping(t testing.TB, ns, addr string, count, n int) {
	t.Helper()
	testenv.NeedTools(t, "ping")
	testenv.Run(t, ns, "ping", "-q", "-c", fmt.Sprint(count), "-i", "0.01", "-W", "10", "-s", fmt.Sprint(n), "-p",
		fmt.Sprintf("%x", mark), addr)
}

// pings does what ping does, and then waits until all marked packets are in writes and both sides
// have given elements back. ping(8) waits only two round trips for the last answers. Packets that
// wait together take few elements, so that it may take further packets until a side gives elements
// back.
func (s *testbed) pings(ns, addr string, count, n int) {
	s.t.Helper()
	ping(s.t, ns, addr, count, n)
	for _, side := range sides {
		s.until(func() error {
			marked, err := s.marked(side)
			if err != nil {
				s.t.Fatal(err)
			}
			if marked < count {
				return fmt.Errorf("%d packets or answers of %d are in the writes of the %s", marked, count, side)
			}
			return nil
		})
		s.until(func() error {
			if len(of(s.posted(side), protocol.FuncBufferRecvPoolUpdate)) > 0 {
				return nil
			}
			testenv.Ping(s.t, ns, addr) // without the mark
			return fmt.Errorf("the %s gives no elements back", side)
		})
	}
}

// marked counts the packets with the mark in a side's writes.
func (s *testbed) marked(side string) (n int, err error) {
	for _, w := range s.writes(side) {
		m, err := markedFrames(w.data)
		if err != nil {
			return 0, fmt.Errorf("a write of the %s: %w", side, err)
		}
		n += m
	}
	return n, nil
}
