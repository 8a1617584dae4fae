package iounit

import (
	"bytes"
	"log/slog"
	"net"
	"testing"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// TestLogIsNotFlooded: neither one who is not let in, nor a host, can fill the log.
func TestLogIsNotFlooded(t *testing.T) {
	const tries = 500
	var log bytes.Buffer
	count := func(what string) {
		t.Helper()
		// As many lines again may come while the test runs slowly.
		if n := bytes.Count(log.Bytes(), []byte("\n")); n == 0 || n > tries/2 {
			t.Errorf("%s: %d lines about %d attempts", what, n, tries)
		}
		log.Reset()
	}
	c := newClient(t, hostWith("all", "02:00:*"))
	c.unit.cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
	c.s.a.log = c.unit.cfg.Log
	for range tries {
		c.unit.Rejected(&net.TCPAddr{}, session.ErrTooManyHandshakes)
	}
	count("connections")
	if n := c.unit.Status().Refused; n != tries {
		t.Errorf("%d refusals were counted, want %d", n, tries)
	}
	for i := range tries {
		c.mac(protocol.MAC{6, 0, 0, 0, byte(i >> 8), byte(i)}, protocol.CfgDenied)
	}
	count("refused requests")
	for i := range tries {
		c.mac(protocol.MAC{2, 0, 1, 0, byte(i >> 8), byte(i)}, protocol.CfgOK)
	}
	if n := bytes.Count(log.Bytes(), []byte("\n")); n > tries/2 {
		t.Errorf("%d lines about %d new addresses", n, tries)
	}
}

// TestMACIsKeptUntilItIsChanged: another host gets neither address while it is
// not certain that the port takes the new one.
func TestMACIsKeptUntilItIsChanged(t *testing.T) {
	c := newClient(t, hostWith("all"))
	c.port.during = func() {
		for _, m := range []protocol.MAC{own, machine} {
			if c.unit.claim(c.unit.hosts["b"], m, nil) == nil {
				t.Errorf("another host got %v", m)
			}
		}
	}
	c.mac(machine, protocol.CfgOK)
	if err := c.unit.claim(c.unit.hosts["b"], own, nil); err != nil {
		t.Error(err)
	}
}
