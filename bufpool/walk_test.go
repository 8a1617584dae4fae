package bufpool

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
)

var doing = [...]string{
	Adopt: "adopt", Drain: "drain", Bind: "bind", BindSend: "bind and send",
	Unbind: "unbind", Use: "use", Stop: "stop", Invalidate: "invalidate",
	Make: "make", SendKeys: "send-keys", Offer: "offer", Ask: "ask", Request: "request", Reply: "reply",
	Deregister: "deregister",
}

// said returns a description of actions.
func said(actions []Action) string {
	var words []string
	for _, a := range actions {
		w := doing[a.Do]
		switch {
		case a.Local != nil:
			w += fmt.Sprintf(" %d", a.Local.Ref)
		case a.Remote != nil:
			w += fmt.Sprintf(" %d", a.Remote.Ref)
		}
		switch a.Do {
		case Make, Ask:
			w += fmt.Sprintf(" of %d × %d on %d", a.Elements, a.Size, a.Channel)
		case Request:
			w += fmt.Sprintf(" %s as %d", strings.Trim(fmt.Sprintf("%#x", a.Refs), "[]"), a.Transaction)
		case Reply:
			w += fmt.Sprintf(" to %d, %d of %d", a.Transaction, a.Pools, a.Elements)
		default:
		}
		if a.Last {
			w += " for good"
		}
		words = append(words, w)
	}
	return strings.Join(words, "; ")
}

// walk has the pools of a session, and a clock.
type walk struct {
	t      *testing.T
	pools  *Pools
	guards int // number of windows of each local pool
	now    time.Time
}

// step passes an event to the pools, and expects want: a description of the actions, or an error.
func (w *walk) step(e Event, want any) []Action {
	w.t.Helper()
	e.Now = w.now
	out, err := w.pools.Step(&e, nil)
	if wrong, ok := want.(error); ok {
		if !errors.Is(err, wrong) {
			w.t.Fatalf("event %d: %q, %v; want %v", e.Kind, said(out), err, wrong)
		}
		return nil
	}
	if got := said(out); got != want || err != nil {
		w.t.Fatalf("event %d: %q, %v; want %q", e.Kind, got, err, want)
	}
	return out
}

// fill gives a local pool its elements and windows.
func (w *walk) fill(l *Local) *Local {
	l.Elements, l.Windows = NewElements(nil, 2048, 4), make([]fabric.Window, w.guards)
	return l
}

// lent offers n of the first pools, and returns them.
func (w *walk) lent(n int) (locals []*Local) {
	for range n {
		locals = append(locals, w.fill(w.pools.First(1)))
	}
	for _, l := range locals {
		for _, did := range []Do{Adopt, Bind}[min(w.guards, 1):] {
			if _, err := w.pools.Step(&Event{Did: did, Local: l}, nil); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	return locals
}

// asked lends a new pool at the request of the peer, and returns it.
func (w *walk) asked() *Local {
	out, _ := w.pools.Step(&Event{Kind: Get, Channel: 1, Size: 100, Elements: 4}, nil)
	l := w.fill(out[0].Local)
	for _, did := range []Do{Make, Adopt, Bind} {
		if did == Bind && w.guards == 0 {
			continue
		}
		if _, err := w.pools.Step(&Event{Did: did, Local: l}, nil); err != nil {
			w.t.Fatal(err)
		}
	}
	return l
}

// lend passes the event to the pools that the peer lends a pool, and returns that pool.
func (w *walk) lend(ref uint32, size int, invalidate bool) *Remote {
	lent := protocol.Pool{Ref: ref, Elements: 4, ElementSize: uint32(size), RKey: 1, Context: protocol.PoolContext(1, 0)}
	r := NewRemote(lent, LatestFirst)
	r.Invalidate = invalidate
	w.step(Event{Kind: Lent, Remote: r}, fmt.Sprintf("use %d", ref))
	return r
}

// lendKeyless is like lend for a pool whose key follows in a later message. It expects want as the
// result of the step.
func (w *walk) lendKeyless(ref uint32, want string) *Remote {
	lent := protocol.Pool{Ref: ref, Elements: 4, ElementSize: 2048, Context: protocol.PoolContext(1, 0)}
	r := NewRemote(lent, LatestFirst)
	r.Invalidate, r.KeyFollows = true, true
	w.step(Event{Kind: Lent, Remote: r}, want)
	return r
}

const giveBack = protocol.FlushGiveBack

func config() Config {
	return Config{
		Channels: 1, MaxPools: 4, PeerPools: 3, MaxElements: 100, KeptPools: 2, IdleTicks: 2,
		PatienceMin: time.Second, PatienceMax: 4 * time.Second,
	}
}
