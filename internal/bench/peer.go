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
