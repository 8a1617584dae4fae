package session

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/internal/testenv"
)

// TestNetnsDeadMachine cuts the network between the two ends of a session, as if a machine had
// lost power: nothing resets the connection. If the peer was vouched for, this ends. Both ends
// must find their peer gone.
func TestNetnsDeadMachine(t *testing.T) {
	for _, vouched := range []bool{false, true} {
		t.Run(fmt.Sprint("vouched ", vouched), func(t *testing.T) {
			m := newMachines(t, ServerConfig{})
			c := m.dial(t, ClientConfig{})
			s := complete(t, m.ln, c)
			s.Vouch(vouched)
			c.Vouch(vouched)

			m.die(t)
			down := time.Now()
			for _, end := range []*Conn{s.Conn, c.Conn} {
				end.Vouch(false)
				if err := waitDone(t, end); !errors.Is(err, ErrPeerGone) {
					t.Errorf("ended with %v", err)
				}
				t.Logf("%v found gone after %v: %v", end, time.Since(down), end.Err())
			}
		})
	}
}

// TestNetnsDeadInHandshake cuts the network between authentication and session. The deadline
// of the handshake is an hour away, but both sides must find their peer gone before.
func TestNetnsDeadInHandshake(t *testing.T) {
	m := newMachines(t, ServerConfig{HandshakeTimeout: time.Hour})
	ctx, cancel := context.WithCancel(testContext(t))
	greeting, waiting := m.dial(t, ClientConfig{HandshakeTimeout: time.Hour}),
		m.dial(t, ClientConfig{HandshakeTimeout: time.Hour})
	greeted := make(chan error, 1)
	go func() {
		_, err := greeting.Hello(ctx, testHello())
		greeted <- err
	}()
	s, err := m.ln.Accept(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	m.die(t)
	if _, err := s.Welcome(ctx, testWelcome()); !errors.Is(err, ErrPeerGone) {
		t.Errorf("I/O unit: %v", err)
	}
	if _, err := waiting.Hello(ctx, testHello()); !errors.Is(err, ErrPeerGone) {
		t.Errorf("host: %v", err)
	}
	cancel() // this host has sent nothing that is unacknowledged, and so notices nothing
	<-greeted
}

// machines is an I/O unit and a host, each in its own network namespace, and a bridge between
// them in another.
type machines struct {
	hostNS, unitNS, bridgeNS string
	host                     *Security
	ln                       *Listener
}

func newMachines(t *testing.T, cfg ServerConfig) *machines {
	t.Helper()
	testenv.NeedRoot(t)
	m := &machines{hostNS: testenv.NetNS(t), unitNS: testenv.NetNS(t), bridgeNS: testenv.NetNS(t)}
	testenv.Veth(t, m.hostNS, "host0", m.bridgeNS, "port1")
	testenv.Veth(t, m.unitNS, "unit0", m.bridgeNS, "port2")
	testenv.Bridge(t, m.bridgeNS, "bridge0", "port1", "port2")
	testenv.Address(t, m.hostNS, "host0", "10.99.0.1/24")
	testenv.Address(t, m.unitNS, "unit0", "10.99.0.2/24")
	m.host, cfg.Security = friends(t)
	var inner net.Listener
	err := netns.Do(m.unitNS, func() (err error) {
		inner, err = net.Listen("tcp", "10.99.0.2:7580")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if m.ln, err = NewListener(inner, cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.ln.Close() })
	return m
}

func (m *machines) dial(t *testing.T, cfg ClientConfig) *Client {
	t.Helper()
	cfg.Security = m.host
	cfg.DialContext = func(ctx context.Context, network, addr string) (nc net.Conn, err error) {
		err = netns.Do(m.hostNS, func() (err error) {
			nc, err = new(net.Dialer).DialContext(ctx, network, addr)
			return err
		})
		return nc, err
	}
	c, err := Dial(testContext(t), "10.99.0.2", cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// die sets the link of the host's machine down.
func (m *machines) die(t *testing.T) {
	t.Helper()
	testenv.With(t, m.hostNS, func(h *netlink.Handle) error {
		return h.LinkSetDown(testenv.Link(t, m.hostNS, "host0"))
	})
}

// forward has the bridge forward frames, or drop them. The machines see no difference.
func (m *machines) forward(t *testing.T, on bool) {
	t.Helper()
	bridge := testenv.Link(t, m.bridgeNS, "bridge0")
	testenv.With(t, m.bridgeNS, func(h *netlink.Handle) error {
		if on {
			return h.LinkSetUp(bridge)
		}
		return h.LinkSetDown(bridge)
	})
}
