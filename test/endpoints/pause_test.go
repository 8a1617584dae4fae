package endpoints

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// TestPauseIsInterrupted has hosts that would try their I/O units again in half an hour at the
// earliest, and then changes what keeps them from a session. They have to try at once.
func TestPauseIsInterrupted(t *testing.T) {
	long := func(c *host.Config) {
		c.RetryMin, c.RetryMax, c.Persevere = time.Hour, time.Hour, true
	}
	tried := func(t *testing.T, h *host.Host) {
		t.Helper()
		testenv.Eventually(t, func() bool { return h.Status().Attempts == 1 }, "an attempt")
	}
	t.Run("reload", func(t *testing.T) {
		w := newWorld(t)
		w.unit()
		trust := w.security(w.hostKey, w.key())
		d, h, _ := w.host("alpha", long, func(c *host.Config) { c.Security = trust })
		tried(t, h)
		if _, err := trust.Update(w.security(w.hostKey, w.unitKey)); err != nil {
			t.Fatal(err)
		}
		d.up(t)
	})
	t.Run("DNS", func(t *testing.T) {
		w := newWorld(t)
		one, two := w.gateway("one"), w.gateway("two")
		one.trusts(w.key().Fingerprint().String())
		var z zone
		z.list(t, one)
		d, h, _ := w.host("alpha", z.configure, long)
		tried(t, h)
		z.list(t, one, two)
		d.up(t)
		with(t, h, two)
	})
	t.Run("failover", func(t *testing.T) {
		w := newWorld(t)
		one, two := w.gateway("one"), w.gateway("two")
		key := w.key()
		d, h, _ := w.host("alpha", long, func(c *host.Config) {
			c.IOUnits, c.Security = addrs(one, two), w.security(key, w.unitKey)
		})
		testenv.Eventually(t, func() bool { return h.Status().Attempts == 2 }, "an attempt with each")
		one.trusts(key.Fingerprint().String())
		two.trusts(key.Fingerprint().String())
		if _, err := h.Failover(t.Context(), "10::99"); err == nil || errors.Is(err, host.ErrNoSession) {
			t.Errorf("to one that is not listed: %v", err)
		}
		if _, err := h.Failover(t.Context(), two.cable.addr); !errors.Is(err, host.ErrNoSession) {
			t.Errorf("without a session: %v", err)
		}
		d.up(t)
		with(t, h, two)
	})
}

// front is a TCP listener that passes its first connection to one address, and all others to
// another.
func front(t *testing.T, first, others string) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", testenv.Loopback()+":0")
	if err != nil {
		t.Fatal(err)
	}
	var relays sync.WaitGroup
	relays.Go(func() {
		for to := first; ; to = others {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			relays.Go(func() {
				defer c.Close()
				far, err := net.Dial("tcp", to)
				if err != nil {
					return
				}
				relays.Go(func() { _, _ = io.Copy(c, far); c.Close() }) // until one of them ends
				_, _ = io.Copy(far, c)
				far.Close()
			})
		}
	})
	t.Cleanup(func() { ln.Close(); relays.Wait() })
	return ln.Addr().String()
}

// TestAttemptWithoutAnswer has the only I/O unit answer the first attempt of a host never, and the
// second one. The host must not wait for the time-out of the first one, which is far away.
func TestAttemptWithoutAnswer(t *testing.T) {
	for name, silent := range map[string]func(t *testing.T, w *world) (addr string){
		"not authenticated": func(t *testing.T, _ *world) string {
			ln, err := net.Listen("tcp", testenv.Loopback()+":0") // connections wait in its queue
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { ln.Close() })
			return ln.Addr().String()
		},
		"no welcome": func(t *testing.T, w *world) string {
			ln, err := session.Listen(testenv.Loopback()+":0", session.ServerConfig{
				Security: w.security(w.unitKey, w.hostKey), HandshakeTimeout: time.Hour, PeerTimeout: time.Hour,
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { ln.Close() })
			return ln.Addr().String()
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.unit()
			addr := front(t, silent(t, w), w.addr)
			d, h, _ := w.host("alpha", func(c *host.Config) {
				c.IOUnits, c.HandshakeTimeout, c.Patience = []string{addr}, time.Hour, time.Millisecond
			})
			d.up(t)
			if n := h.Status().Sessions; n != 1 {
				t.Errorf("%d sessions", n)
			}
		})
	}
}
