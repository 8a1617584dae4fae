package endpoints

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/iounit"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/test/attacks"
)

// TestAttackClasses runs each class of continuous attacks against the I/O unit, by a host with
// a trusted key, and expects that frames of another host get through meanwhile.
// TestRDMAAttackClasses does so on devices.
func TestAttackClasses(t *testing.T) {
	w := newWorld(t)
	u, _ := w.unit()
	d, h, _ := w.host("alpha")
	d.up(t)
	to := w.attacker()
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
		"too-many-handshakes-address": s.Refusals["too-many-handshakes-address"], "untrusted": s.Refusals["untrusted"],
		"queue-pair": s.Ended["queue-pair"], "too-many-requests": s.Violations["too-many-requests"],
	} {
		if n == 0 {
			t.Errorf("nothing is counted as %s: %v, %v, %v", name, s.Refusals, s.Ended, s.Violations)
		}
	}
}

// attacker returns a Target for a host with a trusted key. The host has its own device, until
// the end of the test.
func (w *world) attacker() attacks.Target {
	t := w.t
	t.Helper()
	file := filepath.Join(t.TempDir(), "key")
	if err := session.SaveKey(file, w.hostKey); err != nil {
		t.Fatal(err)
	}
	key, err := attacks.LoadKey(file)
	if err != nil {
		t.Fatal(err)
	}
	dev := w.fabric.Device("attacker")
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	return attacks.Target{Address: w.addr, From: "127.0.0.2", Key: key, Device: dev, Patience: time.Minute}
}

// TestSessionsTooOften lets a host with a trusted key request sessions and drop them as fast as
// possible. The host has to get no more sessions than a key may have. Another host must not be
// affected, and a correct host with the same key has to get a session in the end.
func TestSessionsTooOften(t *testing.T) {
	w := newWorld(t)
	w.patience = testenv.Patience
	u, _ := w.unit()
	d, h, _ := w.host("alpha")
	d.up(t)
	w.both(d)
	to := w.attacker()
	class, _ := attacks.ClassOf("hellos")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var done atomic.Uint64
	result := make(chan error, 1)
	began := time.Now()
	go func() { result <- class.Run(ctx, to, &done) }()
	refused := func() uint64 { return u.Status().Refusals["too-often"] }
	for n := uint64(0); n < 100 && len(result) == 0; n = refused() {
		testenv.Eventually(t, func() bool { return refused() > n || len(result) > 0 },
			"a host, after %d, that is refused for coming too often", n)
	}
	w.both(d)
	late, _, _ := w.host("beta")
	cancel()
	if err := <-result; err != nil {
		t.Error(err)
	}
	// The two other hosts have used a part of the burst.
	if n, most := done.Load(), 16+uint64(4*time.Since(began).Seconds()); n > most {
		t.Errorf("%d sessions were granted, at most %d", n, most)
	}
	late.up(t)
	w.both(late)
	w.both(d)
	if n := h.Status().Sessions; n != 1 {
		t.Errorf("the host beside had to connect again: %d sessions", n)
	}
}

// TestToldWhenToComeAgain connects a host whose key may not open a session at the moment. The
// host has to be refused once, or twice if others with its key are quicker, and not after each
// of its shortest pauses.
func TestToldWhenToComeAgain(t *testing.T) {
	w := newWorld(t)
	u, _ := w.unit()
	class, _ := attacks.ClassOf("hellos")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	to := w.attacker()
	result := make(chan error, 1)
	go func() { result <- class.Run(ctx, to, new(atomic.Uint64)) }()
	testenv.Eventually(t, func() bool { return u.Status().Refusals["too-often"] > 0 || len(result) > 0 }, "a refusal")
	cancel()
	if err := <-result; err != nil {
		t.Error(err)
	}
	d, h, _ := w.host("alpha", func(c *host.Config) { c.RetryMax = time.Second })
	d.up(t)
	// The I/O unit's counter does not help: connections of the attacker may still add to it.
	if n := h.Status().Attempts; n > 2 {
		t.Errorf("the host was refused %d times", n)
	}
}

// TestSessionsMade connects many hosts at once. At most as many sessions as half of the number
// of processors may be set up at the same time, and each host has to get one.
func TestSessionsMade(t *testing.T) {
	const hosts = 12
	most := int32(max(runtime.NumCPU()/2, 1))
	var unit atomic.Pointer[iounit.Unit]
	var making, seen atomic.Int32
	w := newWorld(t)
	u, _ := w.unit(ruled(t, "default: {max-sessions: 12}\n"), func(c *iounit.Config) {
		open := c.OpenLAN
		c.OpenLAN = func(mac net.HardwareAddr, queues int) (lan.Interface, error) {
			if n := making.Add(1); n > seen.Load() {
				seen.Store(n)
			}
			defer making.Add(-1)
			// After this, every other session that may be set up now has had time to get here.
			for t.Context().Err() == nil && (unit.Load() == nil || unit.Load().Status().Bootstrap.Handshakes < hosts) {
				runtime.Gosched()
			}
			for range 20_000 {
				runtime.Gosched()
			}
			return open(mac, queues)
		}
	})
	unit.Store(u)
	var devices []*netdev
	for i := range hosts {
		d, _, _ := w.host(fmt.Sprintf("host-%d", i))
		devices = append(devices, d)
	}
	for _, d := range devices {
		d.up(t)
	}
	if n := seen.Load(); n > most {
		t.Errorf("%d sessions were made at once, want %d at most", n, most)
	}
}
