package session

import (
	"context"
	"net"
	"strings"
	"testing"
)

// TestWrongPortIsNoWrongName dials a port that is the name of no service. Go's error is of the type
// of one about the name of a machine, and the advice must not be.
func TestWrongPortIsNoWrongName(t *testing.T) {
	_, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", "127.0.0.1:758o")
	if err == nil {
		t.Fatal("there is such a service")
	}
	if advice := unreachable(err); !strings.Contains(advice, "is the port right?") {
		t.Errorf("%v%s", err, advice)
	}
	gone := &net.DNSError{Err: "no such host", Name: "tcp.example"}
	if advice := unreachable(gone); !strings.Contains(advice, "the name right") {
		t.Error(advice)
	}
}
