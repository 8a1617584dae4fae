package rx

import (
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/core"
)

// Indicated puts the events of a BufferRDMAIndicate into the queue. The control handler
// calls it. A peer that indicates more transfers than there are elements breaks the
// protocol.
func (r *Receiver) Indicated(events []core.RxEvent) error {
	if r.Queue.Len()+len(events) > int(r.elements.Load())+r.c.MaxPools+protocol.IndicatesPerChannel {
		return r.violation(core.ErrIndications, "%d more, with %d elements in all", len(events), r.elements.Load())
	}
	r.Queue.Put(events...)
	return nil
}

// PeerSent records that the peer has sent all messages below next, in mode send-uc. The request handler
// calls it.
func (r *Receiver) PeerSent(next uint64) {
	r.sent.Store(next)
	r.Queue.Wake()
}

// LongestRevocation returns the longest time from taking the first element of a batch until all its
// windows were invalid.
func (r *Receiver) LongestRevocation() time.Duration { return time.Duration(r.oneTouch.longest.Load()) }

// RenewsAtOnce reports whether the receives of the last n completions must be posted again
// immediately. That holds for receives with memory, which differ from each other, and for
// those of messages between writes, of which there are few.
func (r *Receiver) RenewsAtOnce(n int) bool {
	if !r.c.Mode.Immediate() {
		return n > 0
	}
	for i := range r.comps[:n] {
		if r.comps[i].Op != fabric.OpRecvWriteImm {
			return true
		}
	}
	return false
}
