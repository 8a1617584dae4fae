package iounit

import (
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"testing"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/session"
)

func countingUnit() *Unit {
	return &Unit{cfg: Config{Log: slog.New(slog.DiscardHandler)}, tallies: newTallies()}
}

func TestViolationsAreCountedByRule(t *testing.T) {
	u := countingUnit()
	for _, err := range []error{
		fmt.Errorf("wrapped: %w", &messaging.ProtocolError{Rule: protocol.ErrPadding}),
		&messaging.ProtocolError{Rule: messaging.ErrFrame},
		fmt.Errorf("%w: %w", session.ErrFrame, errors.New("too long")),
		session.ErrMessage, session.ErrUnexpected, session.ErrUnexpected,
		session.ErrPeerGone, &session.ByeError{}, net.ErrClosed, // not violations by the host
	} {
		u.violation(err)
	}
	want := map[string]uint64{"padding": 1, "frame": 1, "bootstrap-frame": 1, "bootstrap-message": 1,
		"bootstrap-out-of-turn": 2}
	if !maps.Equal(u.violations, want) {
		t.Errorf("%v, want %v", u.violations, want)
	}
	for rule := range u.violations {
		testenv.Explained(t, rule)
		if !slices.Contains(Rules(), rule) {
			t.Errorf("%q is not among the rules", rule)
		}
	}
}

func TestRefusalsAreCountedByReason(t *testing.T) {
	u := countingUnit()
	u.Rejected(&net.TCPAddr{}, &session.FieldError{Field: "queues"})
	u.Rejected(&net.TCPAddr{}, session.ErrTooManyHandshakes)
	u.Rejected(&net.TCPAddr{}, &session.ByeError{Code: session.CodeElsewhere})
	u.turnedAway(string(session.CodePolicy))
	if n := u.elsewhere.Load(); n != 1 || slices.Contains(Refusals(), "elsewhere") {
		t.Errorf("%d hosts are elsewhere, want 1, which is not refused", n)
	}
	want := map[string]uint64{"field-queues": 1, "too-many-handshakes": 1, "policy": 1}
	if !maps.Equal(u.refused, want) {
		t.Errorf("%v, want %v", u.refused, want)
	}
	for reason := range u.refused {
		testenv.Explained(t, reason)
		if !slices.Contains(Refusals(), reason) {
			t.Errorf("%q is not among the reasons", reason)
		}
	}
}

func TestEndingsAreCounted(t *testing.T) {
	names := Endings()
	for _, tt := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("wrapped: %w", &messaging.ProtocolError{Rule: messaging.ErrFrame}), "protocol"},
		{fmt.Errorf("%w: %w", session.ErrPeerGone, session.ErrFrame), "protocol"},
		{errReplaced, "replaced"},
		{errShuttingDown, "shutting-down"},
		{errDisconnected, "disconnected"},
		{fmt.Errorf("wrapped: %w", &session.ByeError{}), "bye"},
		{fmt.Errorf("%w: its mode", errPolicy), "policy"},
		{fmt.Errorf("the host: %w", &session.RevokedError{Reason: session.ErrRevoked}), "revoked"},
		{&session.RevokedError{Reason: x509.CertificateInvalidError{Reason: x509.Expired}}, "expired"},
		{&session.RevokedError{Reason: errors.New("not listed")}, "untrusted"},
		{session.ErrPeerGone, "gone"},
		{messaging.ErrPeerSilent, "silent"},
		{fmt.Errorf("wrapped: %w", &fabric.WCError{Status: fabric.StatusRemAccessErr}), "queue-pair"},
		{errors.New("what nobody thought of"), "other"},
	} {
		if got := ending(tt.err); got != tt.want || !slices.Contains(names, got) {
			t.Errorf("%v is counted as %q, want %q, which must be one of %q", tt.err, got, tt.want, names)
		}
		testenv.Explained(t, tt.want)
	}
	u := countingUnit()
	u.count(u.ended, "gone")
	u.count(u.ended, "gone")
	if !maps.Equal(u.ended, map[string]uint64{"gone": 2}) {
		t.Errorf("%v", u.ended)
	}
}

// TestOrderedEndsAreNoWarnings expects that the ends of sessions by a drain or an upgrade of all
// hosts are not logged as warnings.
func TestOrderedEndsAreNoWarnings(t *testing.T) {
	for want, errs := range map[slog.Level][]error{
		slog.LevelInfo: {
			errShuttingDown, errDisconnected, fmt.Errorf("the host: %w", &session.ByeError{Code: session.CodeShuttingDown}),
		},
		slog.LevelWarn: {
			errReplaced, session.ErrPeerGone, messaging.ErrPeerSilent, errPolicy, errors.New("another"),
			&session.ByeError{Code: session.CodeFailed}, &messaging.ProtocolError{Rule: messaging.ErrFrame},
		},
	} {
		for _, err := range errs {
			if got := severity(err); got != want {
				t.Errorf("%v: %v, want %v", err, got, want)
			}
		}
	}
}

// TestNamesOfCountersAreDifferent expects different names in each list, because they are labels of
// metrics.
func TestNamesOfCountersAreDifferent(t *testing.T) {
	for _, names := range [][]string{Rules(), Refusals(), Endings()} {
		slices.Sort(names)
		if n := len(slices.Compact(slices.Clone(names))); n != len(names) {
			t.Errorf("%d different names among %q", n, names)
		}
	}
}
