package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/seal"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// DefaultPort is the TCP port of an end that listens. It differs from that of an I/O unit, which may
// run on the same node.
const DefaultPort = 7590

// WithPort adds DefaultPort to an address without a port. IPv6 addresses without a port need no
// brackets.
func WithPort(addr string) string {
	if _, _, err := net.SplitHostPort(addr); err == nil {
		return addr
	}
	host := strings.TrimSuffix(strings.TrimPrefix(addr, "["), "]")
	if _, err := netip.ParseAddr(host); err != nil && strings.Contains(host, ":") {
		return addr // invalid: the use of the address reports that
	}
	return net.JoinHostPort(host, strconv.Itoa(DefaultPort))
}

// The codes with which the initiator ends a session.
const (
	codeNext session.Code = "next" // another measurement of the run follows
	codeDone session.Code = "done" // the run is over
)

const (
	// handshakeTime bounds the opening of a session, including the creation of queue pairs and
	// the registration of memory.
	handshakeTime = 30 * time.Second
	// silence is the time after which the other end's machine is considered dead. The end of
	// the process is noticed at once.
	silence = 10 * time.Second
)

// nobody is the MAC address in the welcome of a target. The initiator has no netdevice, and ignores
// the address.
var nobody = protocol.MAC{2, 0, 0, 0, 0, 1}

// peer is the session with the other end: a [session.Client] or a [session.Server].
type peer interface {
	Binding() ([session.BindingSize]byte, error)
	Frames() ([seal.SecretSize]byte, error)
	Ready(ctx context.Context) error
	Bye(code session.Code, message string) error
	Done() <-chan struct{}
	Err() error
}

// newEndOf is newEnd for an end whose messages belong to a session with addr. bind says that the queue
// pairs are bound to it.
func newEndOf(p peer, addr string, s Spec, c messaging.Config, bind, initiator bool) (*end, error) {
	if bind {
		secret, err := p.Binding()
		if err != nil {
			return nil, err
		}
		c.Bind = messaging.NewBinding(secret, initiator)
	}
	var err error
	if c.Keys, err = s.keys(p.Frames, initiator); err != nil {
		return nil, err
	}
	e, err := newEnd(s, c, initiator)
	if err != nil {
		return nil, err
	}
	e.gone, e.why = p.Done(), func() error { return explain(addr, p.Err()) }
	return e, nil
}

// with carries out the measurement with the other end, which has these channels. It tells the other end
// why it fails.
func (e *end) with(
	ctx context.Context, p peer, channels []session.Channel, receives int, watch func(Progress),
) error {
	err := e.conn.Connect(session.Addresses(channels), receives)
	if err == nil {
		err = p.Ready(ctx)
	}
	if err == nil {
		err = e.start(watch)
	}
	if err == nil {
		err = e.wait(ctx)
	}
	if err != nil {
		code, why := session.CodeFailed, err.Error()
		if ctx.Err() != nil {
			code, why = session.CodeShuttingDown, "it was interrupted"
		}
		// The first error is returned: this one is mostly about the same connection, which may have ended.
		_ = p.Bye(code, why)
	}
	return err
}

// PeerError is an error about the other end, described in terms of measurements.
type PeerError struct {
	Addr  string
	text  string
	cause error
}

// Error describes the error and the fix.
func (e *PeerError) Error() string { return fmt.Sprintf("the other end, %s, %s", e.Addr, e.text) }

// Unwrap returns the error of package session.
func (e *PeerError) Unwrap() error { return e.cause }

// explain returns a PeerError for an error of a session with addr, if the error is about the other
// end.
func explain(addr string, err error) error {
	var already *PeerError
	var untrusted *session.UntrustedError
	var refused *session.RefusedError
	var bye *session.ByeError
	var dial *net.OpError
	var text string
	switch {
	case err == nil || errors.Is(err, context.Canceled) || errors.As(err, &already):
		return err
	case errors.As(err, &untrusted):
		text = "has another secret; give both ends the one that the end with --listen shows, in SPLITNIC_BENCH_SECRET or by --secret-file"
	case errors.As(err, &refused):
		text = "refused: " + refused.Message
	case errors.As(err, &bye):
		text = "gave up: " + bye.Message
	case errors.Is(err, session.ErrNotSplitnic), errors.Is(err, session.ErrSecurityMode):
		text = "is no `splitnic bench --listen`; check the address and the port"
	case errors.Is(err, syscall.ECONNREFUSED):
		text = "does not listen; start it first, with --listen, and check the address and the port"
	case errors.As(err, &dial) && dial.Op == "dial":
		text = fmt.Sprintf("cannot be reached: %v; check the address, and what is on the way", dial.Err)
	case errors.Is(err, session.ErrPeerGone):
		text = "is gone: its process or its machine ended, or the network between broke"
	default:
		return err
	}
	return &PeerError{addr, text, err}
}
