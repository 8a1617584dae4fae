package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/splitnic/splitnic/splitdrv/host"
)

func TestCondition(t *testing.T) {
	both, session, carrier := Condition{true, true}, Condition{Connected: true}, Condition{Carrier: true}
	connecting := host.Status{State: host.Connecting, IOUnit: host.IOUnitStatus{Address: "10.0.0.1"}}
	failed := host.Status{State: host.Connecting, LastError: "refused"}
	connected := host.Status{State: host.Connected, LastError: "was before"}
	up := connected
	up.Netdevice.Carrier = true
	for _, c := range []struct {
		c    Condition
		s    host.Status
		want string
	}{
		{session, connecting, "has no session with an I/O unit: connecting to 10.0.0.1"},
		{both, failed, "has no session with an I/O unit: refused"},
		{carrier, failed, "has no carrier: there is no session with an I/O unit"},
		{session, connected, ""},
		{both, connected, "has no carrier: the link of the I/O unit's network card is down"},
		{both, up, ""},
		{Condition{}, failed, ""},
	} {
		if got := c.c.Missing(&c.s); got != c.want {
			t.Errorf("%+v of %+v: %q, want %q", c.c, c.s, got, c.want)
		}
	}
}

// TestWaitCommand expects the wait command to read the status after each change, and not in
// between.
func TestWaitCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s host.Status
		looked, next := 0, make(chan struct{})
		c := waitCommand(func() host.Status { looked++; return s }, func() <-chan struct{} { return next })
		wait := func(ctx context.Context) chan error {
			done := make(chan error, 1)
			go func() {
				_, err := c.RunWith(ctx, json.RawMessage(`{"connected":true,"carrier":true}`))
				done <- err
			}()
			synctest.Wait()
			return done
		}
		change := func(f func()) {
			old := next
			next = make(chan struct{})
			f()
			close(old)
			synctest.Wait()
		}
		done := wait(t.Context())
		change(func() { s.State = host.Connected })
		select {
		case err := <-done:
			t.Fatalf("without carrier: %v", err)
		default:
		}
		change(func() { s.Netdevice.Carrier = true })
		if err := <-done; err != nil || looked != 3 {
			t.Errorf("looked %d times at two changes: %v", looked, err)
		}
		s.Netdevice.Carrier = false
		ctx, cancel := context.WithCancel(t.Context())
		done = wait(ctx)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("who asked has gone: %v", err)
		}
		if _, err := c.RunWith(t.Context(), json.RawMessage(`7`)); err == nil {
			t.Error("a number is waited for")
		}
	})
}
