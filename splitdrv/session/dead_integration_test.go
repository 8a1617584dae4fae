package session

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/internal/testenv"
)

// TestNetnsDeadMachine takes the network away between two established ends, as a
// machine does that loses power: nothing resets the connection.
func TestNetnsDeadMachine(t *testing.T) {
	testenv.NeedRoot(t)
	hostNS, unitNS := testenv.NetNS(t), testenv.NetNS(t)
	testenv.Veth(t, hostNS, "host0", unitNS, "unit0")
	testenv.Address(t, hostNS, "host0", "10.99.0.1/24")
	testenv.Address(t, unitNS, "unit0", "10.99.0.2/24")

	host, unit := friends(t)
	var inner net.Listener
	err := netns.Do(unitNS, func() (err error) {
		inner, err = net.Listen("tcp", "10.99.0.2:7580")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := NewListener(inner, ServerConfig{Security: unit})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	ctx := testContext(t)
	c, err := Dial(ctx, "10.99.0.2", ClientConfig{
		Security: host,
		DialContext: func(ctx context.Context, network, addr string) (nc net.Conn, err error) {
			err = netns.Do(hostNS, func() (err error) {
				nc, err = new(net.Dialer).DialContext(ctx, network, addr)
				return err
			})
			return nc, err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	s := complete(t, ln, c)

	testenv.With(t, hostNS, func(h *netlink.Handle) error {
		return h.LinkSetDown(testenv.Link(t, hostNS, "host0"))
	})
	down := time.Now()
	for _, end := range []*Conn{s.Conn, c.Conn} {
		if err := waitDone(t, end); !errors.Is(err, ErrPeerGone) {
			t.Errorf("ended with %v", err)
		}
		t.Logf("%v found gone after %v: %v", end, time.Since(down), end.Err())
	}
}
