package endpoints

import (
	"errors"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/splitdrv/host"
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
