package tx

import (
	"sync/atomic"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/protocol"
)

// indications has the completed transfers that a sender indicates on the control channel,
// and how far the peer has acknowledged the indications. Only the sender's goroutine uses
// it, except for acked.
type indications struct {
	window     int                   // how many messages may be unacknowledged
	always     bool                  // all transfers are indicated
	pending    []protocol.Indication // not sent yet, oldest first
	pools      []*bufpool.Remote     // the pool of each of pending
	sent       uint64                // messages sent, cumulative
	acked      atomic.Uint64         // messages acknowledged, cumulative; set by the control handler
	serialised bool                  // mode imm: a transfer needs an indication, and none may overtake it
}

func (i *indications) init(mode protocol.Mode, depth int) {
	i.window, i.always = mode.Indications(), mode.Indicated()
	if !mode.Sends() {
		i.pending = make([]protocol.Indication, 0, depth)
		i.pools = make([]*bufpool.Remote, 0, depth)
	}
}

// add appends a completed transfer to those that are pending.
func (i *indications) add(f *inFlightEntry) {
	i.pending = append(i.pending, protocol.Indication{Pool: f.pool.Ref, Element: uint32(f.elem), Length: f.length})
	i.pools = append(i.pools, f.pool)
}

func (i *indications) unacknowledged() int { return int(i.sent - i.acked.Load()) }

// due reports whether a message is needed and permitted.
func (i *indications) due() bool { return len(i.pending) > 0 && i.unacknowledged() < i.window }

// settled reports whether all indications are sent and acknowledged.
func (i *indications) settled() bool { return len(i.pending) == 0 && i.unacknowledged() == 0 }

// number returns the first n pending indications, for the message that is about to be
// sent, and assigns the message's number to their elements: the return of any of these
// elements acknowledges the message.
func (i *indications) number(n int) []protocol.Indication {
	i.sent++
	for j, x := range i.pending[:n] {
		i.pools[j].Name(x.Element, i.sent)
	}
	return i.pending[:n]
}

// forget removes the first n transfers, whose indication is sent.
func (i *indications) forget(n int) {
	for _, g := range i.pools[:n] {
		g.Done()
	}
	i.pending = i.pending[:copy(i.pending, i.pending[n:])]
	i.pools = i.pools[:copy(i.pools, i.pools[n:])]
}

// acknowledge records that the peer has returned an element. The control handler calls it.
func (i *indications) acknowledge(g *bufpool.Remote, elem uint16) {
	// The number may be that of an earlier use of the element, if the last use was not indicated.
	if n := g.NamedIn(elem); n > i.acked.Load() {
		i.acked.Store(n)
	}
}
