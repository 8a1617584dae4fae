// Package coretest has sessions for the tests of single parts of a Conn.
package coretest

import (
	"errors"
	"net"
	"testing"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/internal/ticker"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging/cq"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/core"
)

// New returns a session on a device in memory. It ends with the test.
func New(t testing.TB, mode protocol.Mode) *core.Session {
	t.Helper()
	return WithHandlers(t, mode, []cq.Handler{{Number: 1, Budget: cq.DefaultBudget}}, 1)
}

// WithHandlers is New with the handlers of data, beginning with number 1, to which the data channels
// are assigned.
func WithHandlers(t testing.TB, mode protocol.Mode, handlers []cq.Handler, assigned ...int) *core.Session {
	t.Helper()
	dev := fabrictest.New().Device("a")
	g := cq.Handling{Handlers: append([]cq.Handler{{Budget: cq.DefaultBudget}}, handlers...), Assigned: assigned}
	var beats ticker.Ticker
	s := &core.Session{
		Device: dev, Mode: mode, MaxPools: 2, Handlers: cq.NewHandlers(g, 1, nil), Clock: beats.Clock(1),
		Done: make(chan struct{}), Reason: func(err error, _ func() error) error { return err },
	}
	var err error
	s.Stop, err = s.NewEvent()
	if err == nil {
		s.Domain, err = dev.NewDomain()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.End(net.ErrClosed)
		s.Workers.Wait()
		var errs []error
		for _, w := range s.Waiters {
			errs = append(errs, w.Close())
		}
		errs = append(errs, s.Domain.Close(), s.Memory.Close())
		for _, e := range s.Events {
			errs = append(errs, e.Close())
		}
		dev.Close()
		if err := errors.Join(errs...); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Channel returns the queue pair of a data channel of s with room for n sends and n receives. It
// is not connected.
func Channel(t testing.TB, s *core.Session, number, n int, o fabric.QPConfig) *core.DataQP {
	t.Helper()
	ch := &core.DataQP{Number: number}
	var err error
	if ch.SendCQ, err = s.Domain.NewCQ(n+1, 0); err != nil {
		t.Fatal(err)
	}
	if ch.RecvCQ, err = s.Domain.NewCQ(n+1, 0); err != nil {
		t.Fatal(err)
	}
	o.Transport = fabric.RC
	o.SendCQ, o.RecvCQ, o.MaxSend, o.MaxRecv = ch.SendCQ, ch.RecvCQ, n, n
	if ch.QP, err = s.Domain.NewQP(o); err != nil {
		t.Fatal(err)
	}
	return ch
}
