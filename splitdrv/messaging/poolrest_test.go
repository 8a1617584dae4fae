package messaging_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/ticker"
	"github.com/splitnic/splitnic/protocol"
)

// looks runs the pool manager of an endpoint. If quiet, it does so until the manager reports
// that its next beats can be left out; otherwise once, and the manager must not report that.
func looks(t *testing.T, h *endpoint, quiet bool) {
	t.Helper()
	until(t, func() error {
		got, err := h.conn.LookAtPools()
		if err != nil {
			t.Fatal(err)
		}
		if !quiet && got {
			t.Fatal("there is something to do, and the next looks are left out")
		}
		if quiet && !got {
			return errors.New("there is nothing to do, and the next look is not left out")
		}
		return nil
	})
	if h.conn.PoolsRest() != quiet {
		t.Fatalf("a rest: %t", !quiet)
	}
}

// TestPoolsRest checks that the pool manager leaves out beats unless there is something to
// decide: a sender has begun to lack credits, or there are pools lent on request, at either
// side.
func TestPoolsRest(t *testing.T) {
	n, a, b := newPair(t, scarce(protocol.ModeImm, time.Hour), scarce(protocol.ModeImm, time.Hour))
	both := []*endpoint{a, b}
	for _, h := range both {
		h.conn.StopPoolBeat()
		until(t, func() error {
			if n := h.conn.Stats().Channels[0].Remote.Available; n == 0 {
				return errors.New("the peer has not lent its first pool")
			}
			return nil
		})
		looks(t, h, true)
	}

	lacks := a.conn.Stats().Channels[0].TxNoCredit
	n.Stall("b")
	for i := range uint64(50) { // there are credits for four elements
		if err := a.wires[0].Send(deadline(t), frame(i, 1000, 1500)); err != nil {
			t.Fatal(err)
		}
	}
	until(t, func() error {
		if now := a.conn.Stats().Channels[0].TxNoCredit; now == lacks || a.conn.PoolsRest() {
			return fmt.Errorf("%d times without credit, a rest: %t", now-lacks, a.conn.PoolsRest())
		}
		return nil
	})
	looks(t, a, false)
	looks(t, a, true)
	n.Resume("b")
	buf := make([]byte, 1<<16)
	for range 50 {
		if _, err := b.wires[0].Receive(deadline(t), buf); err != nil {
			t.Fatal(err)
		}
	}

	looks(t, b, true)
	f := newFlow(t, deadline(t), a.wires[0], b.wires[0], 1000)
	until(t, func() error {
		if _, err := a.conn.LookAtPools(); err != nil {
			t.Fatal(err)
		}
		if s := a.conn.Stats().Channels[0]; len(s.RemotePools) < 2 {
			return fmt.Errorf("%d pools", len(s.RemotePools))
		}
		return nil
	})
	f.finish(t)
	for _, h := range both {
		if h.conn.PoolsRest() {
			t.Error("there are pools that came on request, and nobody looks")
		}
		looks(t, h, false)
		looks(t, h, false)
	}
}

// TestPoolsWake counts the beats of the pool manager that are left out after a change. They
// must be few.
func TestPoolsWake(t *testing.T) {
	const interval = 100 * time.Millisecond // between two beats
	n, a, _ := newPair(t, scarce(protocol.ModeImm, 4*interval), scarce(protocol.ModeImm, time.Hour))
	rests := func() error {
		if !a.conn.PoolsRest() {
			return errors.New("no rest")
		}
		return nil
	}
	until(t, rests)
	var beats atomic.Uint64
	var all ticker.Ticker
	defer all.Every(interval, func(ticker.Tick) int { beats.Add(1); return 0 }).Stop()
	n.Stall("b")
	before := a.conn.Stats().Channels[0].TxNoCredit
	for i := range uint64(50) { // there are credits for four elements
		if err := a.wires[0].Send(deadline(t), frame(i, 1000, 1500)); err != nil {
			t.Fatal(err)
		}
	}
	until(t, func() error {
		if a.conn.Stats().Channels[0].TxNoCredit == before {
			return errors.New("there is credit")
		}
		return nil
	})
	from := beats.Load()
	until(t, rests) // again: the manager has run, and found no change twice
	if n := beats.Load() - from; n > ticker.MaxRest/2 {
		t.Errorf("a change was noticed after %d beats", n)
	}
}
