package session

import (
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

	"golang.org/x/time/rate"

	"github.com/splitnic/splitnic/protocol"
)

// ClientConfig is how a host connects.
type ClientConfig struct {
	Security *Security // required
	// HandshakeTimeout bounds everything from the connection to the end of
	// Ready, the making of queue pairs in between included; 5 s if zero.
	HandshakeTimeout time.Duration
	// PeerTimeout is how long the I/O unit's machine may send nothing before it
	// is declared dead; 900 ms if zero. It is bounded by the kernel's timers
	// and not kept exactly.
	PeerTimeout time.Duration
	// DialContext makes the TCP connection; that of a net.Dialer if nil.
	DialContext func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Client is the host's end of a session's connection.
type Client struct {
	*Conn
	cfg     ClientConfig // by which it was dialled
	next    step
	hello   Hello
	welcome Welcome
}

// step is the method to be called next.
type step int

const (
	stepHello   step = iota // of a Client
	stepWelcome             // of a Server
	stepAccept              // of a Client
	stepReady
	stepNone
)

// Dial connects to the I/O unit at addr, on DefaultPort unless addr says
// otherwise, and authenticates both sides. A *UntrustedError means that one
// side's key is missing in the other's list; the I/O unit's verdict on ours
// may also come from Hello, because TLS reports it late.
func Dial(ctx context.Context, addr string, cfg ClientConfig) (*Client, error) {
	if cfg.Security == nil {
		return nil, errors.New("dial: no Security in the ClientConfig")
	}
	addr = WithPort(addr)
	deadline := time.Now().Add(orDefault(cfg.HandshakeTimeout, defaultHandshakeTimeout))
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
	conn := newConn(nc, cfg.Security, roleUnit, deadline, orDefault(cfg.PeerTimeout, defaultPeerTimeout))
	conn.useTLS(tls.Client(&records{Conn: nc}, conn.tlsConfig()))
	if err = conn.authenticate(ctx); err != nil {
		return nil, err
	}
	return &Client{Conn: conn, cfg: cfg}, nil
}

// Hello sends the host's wishes and returns what the I/O unit grants. A
// refusal is a *RefusedError or a *VersionError.
func (c *Client) Hello(ctx context.Context, hello Hello) (Welcome, error) {
	if c.next != stepHello {
		return Welcome{}, fmt.Errorf("hello: %w", ErrOrder)
	}
	c.next = stepNone
	err := c.step(ctx, "open a session with", func() error {
		hello.Run = c.security.run
		if err := hello.validate(); err != nil {
			return fmt.Errorf("%w hello: %w", errOwn, err)
		}
		// An I/O unit that does not take our certificate closes while this is
		// written. Why it did so is still there to be read.
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
	c.next = stepAccept
	return c.welcome, nil
}

// checkIssued checks the identifier that the I/O unit has issued, and notes the I/O
// unit's own.
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

// Accept sends the addresses of the host's queue pairs and waits until the I/O
// unit's are ready to receive. The host's own need not be connected yet, but
// their receives are to be posted.
func (c *Client) Accept(ctx context.Context, accept Accept) error {
	if c.next != stepAccept {
		return fmt.Errorf("accept: %w", ErrOrder)
	}
	c.next = stepNone
	err := c.step(ctx, "exchange channels with", func() error {
		if err := accept.validate(&c.welcome); err != nil {
			return fmt.Errorf("%w accept: %w", errOwn, err)
		}
		if err := c.send(acceptMessage{typeAccept, accept}); err != nil {
			return err
		}
		_, err := c.receive(typeReady)
		return err
	})
	if err != nil {
		return err
	}
	c.next = stepReady
	return nil
}

// Ready tells the I/O unit that the host's queue pairs are connected and their
// receives posted. The session is then established.
func (c *Client) Ready(ctx context.Context) error {
	if c.next != stepReady {
		return fmt.Errorf("ready: %w", ErrOrder)
	}
	c.next = stepNone
	err := c.step(ctx, "establish the session with", func() error {
		return c.send(readyMessage{typeReady})
	})
	if err != nil {
		return err
	}
	return c.establish()
}

// unreachable is what to look at when an I/O unit could not be reached because
// of err.
func unreachable(err error) string {
	var dns *net.DNSError
	var timeout net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "; nobody listens there: is splitnic iounit running, and is this the address and port of its --listen?"
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

func orDefault(d, fallback time.Duration) time.Duration {
	if d == 0 {
		return fallback
	}
	return d
}

// HandleDrain has fn called each time that the I/O unit says that it drains, or does so
// no longer, on a goroutine of the connection's, which fn must not hold up. It is called
// before Ready. Without it such a message ends the session.
func (c *Client) HandleDrain(fn func(on bool)) {
	c.draining = draining{drain: fn, rate: rate.NewLimiter(drainRate, drainBurst)}
}

// Stays is the host's answer to Drain if it has nowhere to go, which it may give several
// times, and why.
func (c *Client) Stays(reason string, timeout time.Duration) error {
	return c.sendWithin(staysMessage{typeStays, text(reason)}, timeout)
}
