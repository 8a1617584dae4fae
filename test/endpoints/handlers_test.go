package endpoints

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/cpus"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/iounit"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/messaging/cq"
)

// statusOf returns a status as `splitnic status --json` prints it.
func statusOf[S any](t *testing.T, status func() S) S {
	t.Helper()
	raw, err := json.Marshal(status())
	if err != nil {
		t.Fatal(err)
	}
	var s S
	if err := json.Unmarshal(raw, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// until polls cond, which depends on workers, until it returns true.
func until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	late := time.After(testenv.Patience)
	for tick := time.NewTicker(time.Millisecond); !cond(); {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// handled waits until data channel 1 of a session has handler want.Number, with the properties of
// want, and all its workers have applied them.
func handled(t *testing.T, what string, traffic func() *messaging.Stats, want cq.Handler) {
	t.Helper()
	until(t, what, func() bool {
		s := traffic()
		if s == nil {
			return false
		}
		if len(s.Channels) == 0 || s.Channels[0].Handler != want.Number || len(s.Handlers) <= want.Number {
			return false
		}
		h := s.Handlers[want.Number]
		if !reflect.DeepEqual(h.Handler, want) || !slices.Contains(h.Channels, 1) || len(h.Workers) != 2 {
			return false
		}
		for _, w := range h.Workers {
			if w.Pending || w.Error != "" || (w.Thread != 0) != (len(want.CPUs) > 0) ||
				(w.Thread != 0 && !slices.Equal(w.CPUs, want.CPUs)) {
				return false
			}
		}
		return true
	})
}

// TestHandlersOutliveSessions changes the handlers of both endpoints during a session and between
// sessions, and expects the changes in this session and in the next.
func TestHandlersOutliveSessions(t *testing.T) {
	w := newWorld(t)
	two := []cq.Handler{{Number: 1}, {Number: 2}}
	u, unit := w.unit(func(c *iounit.Config) { c.Messaging.Handlers = two })
	d, h, _ := w.host("alpha", func(c *host.Config) {
		c.Messaging.Handlers, c.Messaging.KeepAlive = two, 10*time.Millisecond
	})
	hostTraffic := func() *messaging.Stats { return statusOf(t, h.Status).Traffic }
	unitNow := u
	unitTraffic := func() *messaging.Stats {
		if s := statusOf(t, unitNow.Status); len(s.Hosts) == 1 {
			return s.Hosts[0].Traffic
		}
		return nil
	}
	d.up(t)
	if s := statusOf(t, h.Status); s.CompVectors != 4 || len(s.Handling.Handlers) != 3 {
		t.Errorf("the host has %d completion vectors, handlers %+v", s.CompVectors, s.Handling)
	}
	if s := statusOf(t, u.Status); s.CompVectors != 4 {
		t.Errorf("the I/O unit has %d completion vectors", s.CompVectors)
	}
	first := cq.Handler{Number: 1, Budget: cq.DefaultBudget}
	handled(t, "the first handler at the host", hostTraffic, first)
	handled(t, "the first handler at the I/O unit", unitTraffic, first)

	list, budget, spin := cpus.Allowed()[:1], 33, 10*time.Microsecond
	change := cq.HandlerChange{
		Assign:   map[int]int{1: 2},
		Handlers: []cq.HandlerPatch{{Number: 2, CPUs: &list, Budget: &budget, Spin: &spin}},
	}
	second := cq.Handler{Number: 2, CPUs: list, Budget: budget, Spin: spin}
	if err := errors.Join(h.ChangeHandlers(change), u.ChangeHandlers("alpha", change)); err != nil {
		t.Fatal(err)
	}
	handled(t, "the second handler at the host", hostTraffic, second)
	handled(t, "the second handler at the I/O unit", unitTraffic, second)
	w.both(d)
	if c := hostTraffic().Channels[0]; c.CompVector != 1 {
		t.Errorf("the channel has moved to completion vector %d within a session", c.CompVector)
	}

	// The same I/O unit, another session.
	before := h.Status().Sessions
	w.fabric.Cut("alpha")
	d.down(t)
	w.fabric.Heal("alpha")
	d.up(t)
	if h.Status().Sessions == before {
		t.Fatal("it is the same session")
	}
	handled(t, "the second handler at the host, in the next session", hostTraffic, second)
	handled(t, "the second handler at the I/O unit, in the next session", unitTraffic, second)
	if c := hostTraffic().Channels[0]; c.CompVector != 2 {
		t.Errorf("in the next session the channel is on completion vector %d", c.CompVector)
	}
	w.both(d)

	// Between sessions, and with another I/O unit, which does not have the changes.
	if err := unit.stop(); err != nil {
		t.Fatal(err)
	}
	d.down(t)
	if err := u.ChangeHandlers("alpha", change); !errors.Is(err, iounit.ErrNoHost) {
		t.Errorf("a host that is gone: %v", err)
	}
	list = nil
	if err := h.ChangeHandlers(cq.HandlerChange{Handlers: []cq.HandlerPatch{{Number: 2,
		CPUs: &list}}}); err != nil {
		t.Fatal(err)
	}
	second.CPUs = nil
	unitNow, _ = w.unit(func(c *iounit.Config) { c.Messaging.Handlers = two })
	d.up(t)
	handled(t, "the handler that was changed between sessions", hostTraffic, second)
	handled(t, "the first handler at the other I/O unit", unitTraffic, first)
	w.both(d)
}

// TestHandlersRefused requests invalid changes of handlers from both endpoints.
func TestHandlersRefused(t *testing.T) {
	w := newWorld(t)
	u, _ := w.unit()
	d, h, _ := w.host("alpha")
	d.up(t)
	until(t, "the session at the I/O unit", func() bool { return len(u.Status().Hosts) == 1 })
	before := h.Status().Handling
	for _, ch := range []cq.HandlerChange{
		{Assign: map[int]int{1: 9}}, {Assign: map[int]int{1: 0}}, {Assign: map[int]int{2: 1}},
		{Handlers: []cq.HandlerPatch{{Number: 9}}},
		{Handlers: []cq.HandlerPatch{{Number: 1, Budget: new(int)}}},
	} {
		if err := h.ChangeHandlers(ch); !errors.Is(err, cq.ErrHandler) {
			t.Errorf("the host takes %+v: %v", ch, err)
		}
		if err := u.ChangeHandlers("alpha", ch); !errors.Is(err, cq.ErrHandler) {
			t.Errorf("the I/O unit takes %+v: %v", ch, err)
		}
	}
	if err := u.ChangeHandlers("beta", cq.HandlerChange{}); !errors.Is(err, iounit.ErrNoHost) {
		t.Errorf("a host that is not there: %v", err)
	}
	if after := h.Status().Handling; !reflect.DeepEqual(before, after) {
		t.Errorf("%+v has become %+v", before, after)
	}
	w.both(d)
}
