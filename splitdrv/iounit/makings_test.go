package iounit

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// TestMakings has owners wait for each other, and for themselves.
func TestMakings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &makings{places: make(chan struct{}, 4), each: 2, of: make(map[string]*maker)}
		var order []string
		ends := make(map[string]func())
		ask := func(owner, name string) {
			go func() {
				end, err := m.take(t.Context(), nil, time.Now().Add(time.Hour), owner)
				if err != nil {
					t.Error(err)
				}
				order = append(order, name)
				ends[name] = end
			}()
			synctest.Wait()
		}
		is := func(want ...string) {
			t.Helper()
			synctest.Wait()
			if len(order) != len(want) {
				t.Fatalf("sessions were made in the order %v, want %v", order, want)
			}
			for i := range want {
				if order[i] != want[i] {
					t.Fatalf("sessions were made in the order %v, want %v", order, want)
				}
			}
		}
		for _, name := range []string{"a1", "a2", "a3", "a4"} {
			ask("a", name)
		}
		is("a1", "a2") // its own places
		ask("b", "b1")
		ask("b", "b2")
		ask("c", "c1")
		is("a1", "a2", "b1", "b2")
		ends["a1"]()
		is("a1", "a2", "b1", "b2", "c1") // before those of a that came earlier
		ends["a1"]()                     // which does nothing
		ends["c1"]()
		is("a1", "a2", "b1", "b2", "c1", "a3")
		for _, name := range []string{"b1", "b2", "a2", "a3"} {
			ends[name]()
			synctest.Wait()
		}
		ends["a4"]()
		if len(m.of) != 0 || len(m.places) != 0 {
			t.Errorf("at the end there are %d owners and %d places taken", len(m.of), len(m.places))
		}
	})
}

// TestMakingsGiveUp leaves the place in the row when there is nothing to wait for.
func TestMakingsGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &makings{places: make(chan struct{}, 1), each: 1, of: make(map[string]*maker)}
		end, err := m.take(t.Context(), nil, time.Now().Add(time.Hour), "a")
		if err != nil {
			t.Fatal(err)
		}
		why := errors.New("the I/O unit ends")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(why)
		gone := make(chan struct{})
		close(gone)
		hour := time.Now().Add(time.Hour)
		for _, owner := range []string{"a", "b"} {
			if _, err := m.take(ctx, nil, hour, owner); !errors.Is(err, why) {
				t.Errorf("%s, at the end of the I/O unit: %v", owner, err)
			}
			if _, err := m.take(t.Context(), gone, hour, owner); !errors.Is(err, net.ErrClosed) {
				t.Errorf("%s, at the end of the connection: %v", owner, err)
			}
			before := time.Now()
			if _, err := m.take(t.Context(), nil, before.Add(time.Second), owner); !errors.Is(err, os.ErrDeadlineExceeded) ||
				time.Since(before) != time.Second {
				t.Errorf("%s, after %v: %v", owner, time.Since(before), err)
			}
		}
		end()
		if len(m.of) != 0 || len(m.places) != 0 {
			t.Errorf("at the end there are %d owners and %d places taken", len(m.of), len(m.places))
		}
	})
}
