package halves

import (
	"context"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/test/attacks"
)

// TestAttackClasses has a host with the right key attack the I/O unit in every
// way that goes on and on, while frames of another host cross. TestRDMAAttackClasses
// does so on devices.
func TestAttackClasses(t *testing.T) {
	w := newWorld(t)
	u, _ := w.unit()
	d, h, _ := w.host("alpha")
	d.up(t)
	file := filepath.Join(t.TempDir(), "key")
	if err := session.SaveKey(file, w.hostKey); err != nil {
		t.Fatal(err)
	}
	key, err := attacks.LoadKey(file)
	if err != nil {
		t.Fatal(err)
	}
	dev := w.fabric.Device("attacker")
	defer func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	}()
	to := attacks.Target{Address: w.addr, From: "127.0.0.2", Key: key, Device: dev, Patience: time.Minute}
	for _, class := range attacks.Classes() {
		t.Run(class.Name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var done atomic.Uint64
			result := make(chan error, 1)
			go func() { result <- class.Run(ctx, to, &done) }()
			testenv.Eventually(t, func() bool { return done.Load() >= 2 || len(result) > 0 }, "the attack")
			for range 3 {
				w.both(d)
			}
			cancel()
			if err := <-result; err != nil {
				t.Error(err)
			}
			testenv.Eventually(t, func() bool { return len(u.Status().Hosts) == 1 }, "the end of the attacker's sessions")
		})
	}
	if n := h.Status().Sessions; n != 1 {
		t.Errorf("the host beside had to connect again: %d sessions", n)
	}
	s := u.Status()
	for name, n := range map[string]uint64{
		"crowded-address": s.Refusals["crowded-address"], "untrusted": s.Refusals["untrusted"],
		"queue-pair": s.Ended["queue-pair"], "too-many-requests": s.Violations["too-many-requests"],
	} {
		if n == 0 {
			t.Errorf("nothing is counted as %s: %v, %v, %v", name, s.Refusals, s.Ended, s.Violations)
		}
	}
}
