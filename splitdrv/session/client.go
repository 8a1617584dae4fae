package session

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/splitnic/splitnic/protocol"
)

// ClientConfig is the configuration of a host's connection.
type ClientConfig struct {
	Security *Security // required
	// HandshakeTimeout is the time-out from the dial to the end of Ready, including the
	// creation of queue pairs in between; default 5 s.
	HandshakeTimeout time.Duration
	// PeerTimeout is the time without an answer after which the I/O unit's machine is
	// declared dead; default 1 s. It is approximate, because kernel timers are involved.
	PeerTimeout time.Duration
	// DialContext makes the TCP connection; default that of a net.Dialer.
	DialContext func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Client is the host's end of a session's connection.
type Client struct {
	*Conn
	cfg     ClientConfig // of Dial
	hello   Hello
	welcome Welcome
}

// Dial connects to the I/O unit at addr, on DefaultPort unless addr has a port, and
// authenticates both sides. A *UntrustedError means that one side does not trust the other's
// key. If the I/O unit does not trust this side's key, Hello may return that error instead,
// because TLS reports it late.
func Dial(ctx context.Context, addr string, cfg ClientConfig) (*Client, error) {
	if cfg.Security == nil {
		return nil, errors.New("dial: no Security in the ClientConfig")
	}
	addr = WithPort(addr)
	deadline := time.Now().Add(cmp.Or(cfg.HandshakeTimeout, defaultHandshakeTimeout))
	dial := cfg.DialContext
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	bounded, cancel := context.WithDeadline(ctx, deadline)
	nc, err := dial(bounded, "tcp", addr)
	cancel()
	if err != nil {
		return nil, fmt.Errorf("connect to the I/O unit at %s: %w%s", addr, err, unreachable(err))
	}
	conn := newConn(nc, cfg.Security, roleUnit, deadline, cmp.Or(cfg.PeerTimeout, defaultPeerTimeout))
	conn.useTLS(tls.Client(&records{Conn: nc}, conn.tlsConfig()))
	if err = conn.authenticate(ctx); err != nil {
		return nil, err
	}
	return &Client{Conn: conn, cfg: cfg}, nil
}

// Hello sends the host's requests and returns what the I/O unit grants. A refusal is a
// *RefusedError or a *VersionError.
func (c *Client) Hello(ctx context.Context, hello Hello) (Welcome, error) {
	err := c.turn(ctx, stepHello, stepAccept, "open a session with", func() error {
		hello.Run = c.security.run
		if err := hello.validate(); err != nil {
			return fmt.Errorf("%w hello: %w", errOwn, err)
		}
		// An I/O unit that does not accept this side's certificate closes the connection
		// while the hello is written. The reason can still be read.
		sendErr := c.send(helloMessage{typeHello, magic, spoken, hello})
		b, err := c.receive(typeWelcome)
		if err != nil {
			return errors.Join(err, sendErr)
		}
		c.hello = hello
		if c.welcome, err = decodeWelcome(b, &c.hello); err != nil {
			return err
		}
		return c.checkIssued(&c.welcome)
	})
	if err != nil {
		return Welcome{}, err
	}
	return c.welcome, nil
}

// checkIssued checks the platform identifier in the welcome, and records that of the I/O
// unit.
func (c *Client) checkIssued(w *Welcome) error {
	if w.Platform == 0 {
		return nil
	}
	own := c.platform()
	if w.Platform != own {
		return invalid("platform", w.Platform, "must be %v, which follows from the host's key and run", own)
	}
	c.issued.own, c.issued.peer = own, protocol.PlatformOf(c.Peer().Fingerprint, w.Run)
	return nil
}

// Accept sends the addresses of the host's queue pairs and waits until those of the I/O unit
// are ready to receive. The host's own need not be connected yet, but their receives must be
// posted.
func (c *Client) Accept(ctx context.Context, accept Accept) error {
	return c.turn(ctx, stepAccept, stepReady, "exchange channels with", func() error {
		if err := accept.validate(&c.welcome); err != nil {
			return fmt.Errorf("%w accept: %w", errOwn, err)
		}
		if err := c.send(acceptMessage{typeAccept, accept}); err != nil {
			return err
		}
		_, err := c.receive(typeReady)
		return err
	})
}

// Ready tells the I/O unit that the host's queue pairs are connected and their receives are
// posted. Then the session is established.
func (c *Client) Ready(ctx context.Context) error {
	err := c.turn(ctx, stepReady, stepNone, "establish the session with", func() error {
		return c.send(readyMessage{typeReady})
	})
	if err != nil {
		return err
	}
	return c.establish()
}

// unreachable returns advice for an I/O unit that could not be reached because of err.
func unreachable(err error) string {
	var dns *net.DNSError
	var timeout net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "; nobody listens there: is splitnic iounit running, and is this the address and port of its --listen?"
	case errors.As(err, &dns) && strings.HasPrefix(dns.Name, "tcp/"): // the name of a service, not of a machine
		return "; is the port right? It must be 1 to 65535, or the name of a service that this machine knows"
	case errors.As(err, &dns):
		return "; is the name right, and known here (getent hosts NAME)?"
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH),
		errors.As(err, &timeout) && timeout.Timeout():
		return "; is the machine up, the address right, and no firewall between (ping, ip route get)?"
	}
	return ""
}

// WithPort adds DefaultPort to an address without a port. IPv6 addresses need
// no brackets then.
func WithPort(addr string) string {
	if _, _, err := net.SplitHostPort(addr); err == nil {
		return addr
	}
	host := strings.TrimSuffix(strings.TrimPrefix(addr, "["), "]")
	if _, err := netip.ParseAddr(host); err != nil && strings.Contains(host, ":") {
		return addr // neither; Dial's error will say so
	}
	return net.JoinHostPort(host, strconv.Itoa(DefaultPort))
}

// HandleDrain registers fn, which is called each time the I/O unit reports that it is being
// drained, or no longer is. fn runs on a goroutine of the connection and must not wait.
// HandleDrain must be called before Ready. Without it, such a message ends the session.
func (c *Client) HandleDrain(fn func(on bool)) {
	c.handles(typeDrain, drainRate, drainBurst, func(b []byte) (func(), error) {
		on, err := decodeDrain(b)
		return func() { fn(on) }, err
	})
}

// Stays reports to the I/O unit why the host does not move, in answer to a drain. It may be
// called several times.
func (c *Client) Stays(reason string, timeout time.Duration) error {
	return c.sendWithin(staysMessage{typeStays, text(reason)}, timeout)
}
