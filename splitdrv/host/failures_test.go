package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/splitnic/splitnic/splitdrv/session"
)

// unreached returns the error of a connection that was not made.
func unreached(addr string, why error) error {
	return fmt.Errorf("connect to the I/O unit at %s: %w; a hint", addr, &net.OpError{Op: "dial", Net: "tcp", Err: why})
}

// TestLastErrorOfAll has attempts at several I/O units fail. The last error has to name each of them,
// and to begin with the answer of one that was reached, in whatever order they were tried.
func TestLastErrorOfAll(t *testing.T) {
	refused := func(addr string) error { return unreached(addr, os.NewSyscallError("connect", syscall.ECONNREFUSED)) }
	untrusted := &session.UntrustedError{}
	busy := &session.RefusedError{Code: session.CodeBusy, Message: "come later"}
	type tried struct {
		addr string
		err  error
	}
	for _, c := range []struct {
		name  string
		units []string
		tried []tried
		want  string
	}{
		{"only one", []string{"a:1"}, []tried{{"a:1", untrusted}}, untrusted.Error()},
		{"its last one", []string{"a:1"}, []tried{{"a:1", untrusted}, {"a:1", busy}}, busy.Error()},
		{"one of two so far", []string{"a:1", "b:1"}, []tried{{"b:1", untrusted}}, untrusted.Error()},
		{"a refusal first", []string{"a:1", "b:1"}, []tried{{"a:1", untrusted}, {"b:1", refused("b:1")}},
			"a:1: " + untrusted.Error() + "; b:1: connection refused"},
		{"a refusal last", []string{"a:1", "b:1"}, []tried{{"a:1", refused("a:1")}, {"b:1", untrusted}},
			"b:1: " + untrusted.Error() + "; a:1: connection refused"},
		{"two refusals", []string{"a:1", "b:1"}, []tried{{"b:1", untrusted}, {"a:1", busy}},
			"a:1: " + busy.Error() + "; b:1: " + untrusted.Error()},
		{"nobody is there", []string{"a:1", "b:1"}, []tried{{"b:1", refused("b:1")}, {"a:1", refused("a:1")}},
			refused("a:1").Error() + "; b:1: connection refused"},
		{"given up for another", []string{"a:1", "b:1"}, []tried{{"a:1", errOvertaken}, {"b:1", busy}},
			"b:1: " + busy.Error() + "; a:1: " + errOvertaken.Error()},
		{"other reasons", []string{"a:1", "b:1", "c:1", "d:1"}, []tried{
			{"a:1", unreached("a:1", &net.DNSError{Err: "no such host", Name: "a"})},
			{"b:1", unreached("b:1", context.DeadlineExceeded)}, {"c:1", unreached("c:1", errors.New("odd"))}, {"d:1", busy}},
			"d:1: " + busy.Error() + "; a:1: no such host; b:1: no answer; c:1: odd"},
		{"of those that there are", []string{"a:1"}, []tried{{"b:1", untrusted}, {"a:1", refused("a:1")}},
			refused("a:1").Error()},
		{"none is left", nil, []tried{{"a:1", busy}, {"b:1", untrusted}}, untrusted.Error()},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &sessions{}
			for _, a := range c.tried {
				s.tried(a.addr, a.err)
			}
			if got := s.tally.lastError(c.units); got != c.want {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}

// TestLastErrorIsBounded has more I/O units than a line can name.
func TestLastErrorIsBounded(t *testing.T) {
	s := &sessions{}
	var units []string
	for i := range 3 * mostWarned {
		addr := fmt.Sprintf("unit%d:1", i)
		s.tried(addr, unreached(addr, syscall.ECONNREFUSED))
		if n := len(s.tally.failed); n > mostWarned {
			t.Fatalf("%d failures are remembered", n)
		}
		units = append(units, addr)
	}
	got := s.tally.lastError(units[2*mostWarned:])
	if !strings.HasSuffix(got, fmt.Sprintf("; and %d more", mostWarned-mostNamed)) {
		t.Error(got)
	}
}
