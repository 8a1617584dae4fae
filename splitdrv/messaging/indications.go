package messaging

import (
	"sync/atomic"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/protocol"
)

// indications are a sender's transfers that have completed and are indicated on
// the control channel, and how far the peer has acknowledged that. They are the
// sender's goroutine's.
type indications struct {
	window     int                   // how many messages may be unacknowledged
	pending    []protocol.Indication // not sent yet, oldest first
	pools      []*bufpool.Remote     // theirs
	sent       uint64                // messages, cumulative
	acked      atomic.Uint64         // of those; the control handler's
	serialised bool                  // in mode imm: a transfer is indicated, and nothing may overtake it
}

func (i *indications) init(cfg *Config) {
	i.window = 1
	if cfg.Mode == protocol.ModeIndicate {
		i.window = protocol.IndicatesPerChannel
	}
	if !cfg.Mode.Sends() {
		i.pending = make([]protocol.Indication, 0, sqDepth(cfg))
		i.pools = make([]*bufpool.Remote, 0, sqDepth(cfg))
	}
}

// add notes that a transfer has completed.
func (i *indications) add(f *inFlightEntry) {
	i.pending = append(i.pending, protocol.Indication{Pool: f.pool.Ref, Element: uint32(f.elem), Length: f.length})
	i.pools = append(i.pools, f.pool)
}

func (i *indications) unacknowledged() int { return int(i.sent - i.acked.Load()) }

// due reports whether a message has to be sent and may be.
func (i *indications) due() bool { return len(i.pending) > 0 && i.unacknowledged() < i.window }

// settled reports whether everything is sent and acknowledged.
func (i *indications) settled() bool { return len(i.pending) == 0 && i.unacknowledged() == 0 }

// number numbers the message that is about to indicate the first n transfers, so
// that the return of any of their elements acknowledges it, and returns these.
func (i *indications) number(n int) []protocol.Indication {
	i.sent++
	for j, x := range i.pending[:n] {
		i.pools[j].Name(x.Element, i.sent)
	}
	return i.pending[:n]
}

// forget forgets the first n transfers: they are indicated.
func (i *indications) forget(n int) {
	for _, g := range i.pools[:n] {
		g.Pending--
	}
	i.pending = i.pending[:copy(i.pending, i.pending[n:])]
	i.pools = i.pools[:copy(i.pools, i.pools[n:])]
}

// acknowledge hears that the peer has returned an element. Called by the
// control handler.
func (i *indications) acknowledge(g *bufpool.Remote, elem uint16) {
	// Not of an earlier use of the element, which was not indicated so since.
	if n := g.NamedIn(elem); n > i.acked.Load() {
		i.acked.Store(n)
	}
}
