package session

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/internal/testca"
	"github.com/splitnic/splitnic/internal/testenv"
)

// TestErrdocDialing produces the errors in a host's status without a session, or after one.
// Each must be explained in the documentation.
func TestErrdocDialing(t *testing.T) {
	host, unit := friends(t)
	explained := func(t *testing.T, err error) {
		t.Helper()
		if err == nil {
			t.Fatal("no error")
		}
		testenv.Explained(t, err.Error())
	}
	dials := func(t *testing.T, addr string) error {
		t.Helper()
		_, err := Dial(testContext(t), addr, ClientConfig{Security: host, HandshakeTimeout: time.Minute})
		return err
	}
	t.Run("nobody listens", func(t *testing.T) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ln.Close()
		explained(t, dials(t, ln.Addr().String()))
	})
	t.Run("name", func(t *testing.T) { explained(t, dials(t, "gate way")) })
	// Go's error is of the type of one about the name of a machine, and the advice must not be.
	t.Run("port", func(t *testing.T) {
		err := dials(t, "127.0.0.1:758o")
		explained(t, err)
		if !strings.Contains(err.Error(), "is the port right?") {
			t.Error(err)
		}
	})
	t.Run("not TLS", func(t *testing.T) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		go func() {
			if nc, err := ln.Accept(); err == nil {
				nc.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
				nc.Close()
			}
		}()
		explained(t, dials(t, ln.Addr().String()))
	})
	t.Run("not a host", func(t *testing.T) {
		ln, rejected := listen(t, ServerConfig{Security: unit})
		nc, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		nc.Write([]byte("GET / HTTP/1.0\r\n\r\n"))
		explained(t, rejected.next(t))
	})
	t.Run("swapped trust", func(t *testing.T) {
		ln, rejected := listen(t, ServerConfig{Security: secured(t, newKey(t), newKey(t).Fingerprint().String())})
		explained(t, knock(t, ln, host))
		explained(t, rejected.next(t))
	})
	t.Run("the other does not trust", func(t *testing.T) {
		u := newKey(t)
		ln, rejected := listen(t, ServerConfig{Security: secured(t, u, newKey(t).Fingerprint().String())})
		explained(t, knock(t, ln, secured(t, newKey(t), u.Fingerprint().String())))
		explained(t, rejected.next(t))
	})
	t.Run("only the host is insecure", func(t *testing.T) {
		ln, _ := listen(t, ServerConfig{Security: unit})
		explained(t, knock(t, ln, insecure(t)))
	})
	t.Run("only the I O unit is insecure", func(t *testing.T) {
		ln, _ := listen(t, ServerConfig{Security: insecure(t)})
		explained(t, knock(t, ln, host))
	})
	t.Run("gone in the handshake", func(t *testing.T) {
		ln, _ := listen(t, ServerConfig{Security: unit})
		go func() {
			if s, err := ln.Accept(testContext(t)); err == nil {
				s.Close()
			}
		}()
		explained(t, call(t, ln, host))
	})
	t.Run("silent in the handshake", func(t *testing.T) {
		ln, _ := listen(t, ServerConfig{Security: unit})
		c, err := Dial(testContext(t), ln.Addr().String(),
			ClientConfig{Security: host, HandshakeTimeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.deadline = time.Now().Add(100 * time.Millisecond) // after Dial, which may take long
		_, err = c.Hello(testContext(t), testHello())
		explained(t, err)
	})
	t.Run("gone", func(t *testing.T) {
		ln, _ := listen(t, ServerConfig{Security: unit})
		c, s := establish(t, ln, host)
		s.raw.Close()
		explained(t, waitDone(t, c.Conn))
	})
	hour := func(n time.Duration) time.Time { return time.Now().Add(n * time.Hour) }
	for name, from := range map[string]time.Duration{"certificate that is over": -48, "certificate of the future": 47} {
		t.Run(name, func(t *testing.T) {
			// Two sides that trust one authority. One of them has such a certificate.
			a := &authority{testca.NewFor(t, hour(-72), hour(72))}
			key := newKey(t)
			untimely := a.trusting(t, key, a.IssueWithin(t, key, "node17.cluster", x509.ExtKeyUsageClientAuth, hour(from),
				hour(from+1)))
			ln, rejected := listen(t, ServerConfig{Security: a.member(t, "gw1.cluster", x509.ExtKeyUsageServerAuth)})
			explained(t, knock(t, ln, untimely))
			explained(t, rejected.next(t))
			rogue, rejected := listen(t, ServerConfig{Security: untimely})
			explained(t, knock(t, rogue, a.member(t, "node18.cluster", x509.ExtKeyUsageClientAuth)))
			explained(t, rejected.next(t))
		})
	}
	t.Run("authority that is over", func(t *testing.T) {
		a := &authority{testca.NewFor(t, hour(-48), hour(-47))}
		ln, rejected := listen(t, ServerConfig{Security: a.member(t, "gw1.cluster", x509.ExtKeyUsageServerAuth)})
		explained(t, knock(t, ln, a.member(t, "node17.cluster", x509.ExtKeyUsageClientAuth)))
		explained(t, rejected.next(t))
	})
	t.Run("certificate of another authority", func(t *testing.T) {
		a := newAuthority(t)
		ln, rejected := listen(t, ServerConfig{Security: a.member(t, "gw1.cluster", x509.ExtKeyUsageServerAuth)})
		explained(t, knock(t, ln, trusting(t, newAuthority(t), a)))
		if err := rejected.next(t); err == nil {
			t.Error("no error")
		}
	})
	t.Run("certificate for the other role", func(t *testing.T) {
		a := newAuthority(t)
		ln, rejected := listen(t, ServerConfig{Security: a.member(t, "gw1.cluster", x509.ExtKeyUsageServerAuth)})
		explained(t, knock(t, ln, a.member(t, "gw2.cluster", x509.ExtKeyUsageServerAuth)))
		if err := rejected.next(t); err == nil {
			t.Error("no error")
		}
	})
	t.Run("version", func(t *testing.T) {
		ln, rejected := listen(t, ServerConfig{Security: unit})
		c := rawHost(t, ln, host)
		if _, err := c.Write(frame(`{"type":"hello","magic":"splitnic","versions":{"min":2,"max":3}}`)); err != nil {
			t.Fatal(err)
		}
		explained(t, rejected.next(t))
	})
}

// TestErrdocCodes refuses, and ends, a session with every code. Each error must be explained in
// the documentation.
func TestErrdocCodes(t *testing.T) {
	host, unit := friends(t)
	ln, _ := listen(t, ServerConfig{Security: unit})
	for _, code := range Codes() {
		t.Run(string(code), func(t *testing.T) {
			testenv.Explained(t, string(code))
			refused := make(chan error, 1)
			go func() {
				s, err := ln.Accept(testContext(t))
				if err == nil {
					err = s.Refuse(code, "for a reason")
				}
				refused <- err
			}()
			err := call(t, ln, host)
			var why *RefusedError
			if !errors.As(err, &why) && code != CodeVersion {
				t.Fatal(err)
			}
			testenv.Explained(t, err.Error())
			if err := <-refused; err != nil {
				t.Fatal(err)
			}
			c, s := establish(t, ln, host)
			if err := s.Bye(code, "for a reason"); err != nil {
				t.Fatal(err)
			}
			testenv.Explained(t, waitDone(t, c.Conn).Error())
		})
	}
}

// TestErrdocRevoked withdraws the trust in a host that has a session, and has the host connect
// again. Each error must be explained in the documentation.
func TestErrdocRevoked(t *testing.T) {
	h, u := newKey(t), newKey(t)
	trustsHost := "alpha=" + h.Fingerprint().String()
	for name, next := range map[string]*Security{
		"not listed": secured(t, u, newKey(t).Fingerprint().String()),
		"revoked":    revoking(t, u, h.Fingerprint(), trustsHost),
	} {
		t.Run(name, func(t *testing.T) {
			host, unit := secured(t, h, u.Fingerprint().String()), secured(t, u, trustsHost)
			ln, rejected := listen(t, ServerConfig{Security: unit})
			c, s := establish(t, ln, host)
			update(t, unit, next, 1)
			testenv.Explained(t, waitDone(t, s.Conn).Error())
			testenv.Explained(t, waitDone(t, c.Conn).Error())
			testenv.Explained(t, knock(t, ln, host).Error())
			testenv.Explained(t, rejected.next(t).Error())
		})
	}
}

// TestErrdocReasons expects that each reason by which connections are counted is explained in
// the documentation.
func TestErrdocReasons(t *testing.T) {
	for _, name := range Reasons() {
		testenv.Explained(t, name)
	}
}

// TestNetnsErrdocDialing dials an address that cannot be reached. Each error must be explained
// in the documentation.
func TestNetnsErrdocDialing(t *testing.T) {
	testenv.NeedRoot(t)
	ns := testenv.NetNS(t)
	host, _ := friends(t)
	dials := func(t *testing.T, patience time.Duration) {
		t.Helper()
		_, err := Dial(testContext(t), "192.0.2.1", ClientConfig{
			Security: host, HandshakeTimeout: patience,
			DialContext: func(ctx context.Context, network, addr string) (nc net.Conn, err error) {
				err = netns.Do(ns, func() (err error) {
					nc, err = new(net.Dialer).DialContext(ctx, network, addr)
					return err
				})
				return nc, err
			},
		})
		if err == nil {
			t.Fatal("somebody answers")
		}
		testenv.Explained(t, err.Error())
	}
	t.Run("no route", func(t *testing.T) { dials(t, time.Minute) })
	testenv.Veth(t, ns, "void0", testenv.NetNS(t), "end0")
	testenv.Address(t, ns, "void0", "192.0.2.7/24")
	testenv.With(t, ns, func(h *netlink.Handle) error {
		// A permanent neighbour entry: no resolution that could fail and report this.
		err := h.NeighAdd(&netlink.Neigh{
			LinkIndex: testenv.Link(t, ns, "void0").Attrs().Index, IP: net.IPv4(192, 0, 2, 1), State: netlink.NUD_PERMANENT,
			HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 1},
		})
		if err != nil {
			return fmt.Errorf("neighbour: %w", err)
		}
		return nil
	})
	t.Run("no answer", func(t *testing.T) { dials(t, 50*time.Millisecond) })
}
