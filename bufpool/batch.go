package bufpool

import (
	"slices"
	"time"

	"github.com/splitnic/splitnic/fabric"
)

// MaxBatch is how many elements a Batch has at most. So many work requests have room
// in the send queue besides those of frames, twice.
const MaxBatch = 64

// Batch is a number of elements of one-touch pools on their way from being written to
// being lent again. What the peer says to have written is looked at only when the
// element's window is invalid, and the element goes back to the peer only when it is
// bound again. In between it is consumed in the ledger of its pool:
//
//	receiver  consumes elements, and gathers them      Batches.Gather, Revoke
//	sender    invalidates their windows (LOCAL_INV), and awaits the last
//	receiver  checks and delivers what is in them      Batches.Revoked
//	sender    binds the windows, under the next keys, and awaits the last
//	receiver  releases the elements, which an update returns
type Batch struct {
	Written  []Written
	Requests []fabric.SendWR // the sender's, to post them at once
	Begun    time.Time       // when the first of Written was gathered
}

// Written is an element in a Batch.
type Written struct {
	Local     *Local
	Element   int
	Data      []byte // what was written, not to be looked at before its window is invalid
	Indicated bool   // on the control channel
	Last      bool   // and the last one of its message
}

// Batches are those of a data channel. They belong to its receiver.
type Batches struct {
	gathered *Batch   // not with the sender yet
	revoking []*Batch // with the sender, to be invalidated; oldest first
	spare    []*Batch // not in use
}

// Gather puts an element that was consumed among those whose windows are to be
// invalidated next, of which there are fewer than MaxBatch, and returns these.
func (b *Batches) Gather(w Written) *Batch {
	if b.gathered == nil {
		if n := len(b.spare); n > 0 {
			b.gathered = b.spare[n-1]
			b.spare = b.spare[:n-1]
		} else {
			b.gathered = &Batch{Written: make([]Written, 0, MaxBatch), Requests: make([]fabric.SendWR, 0, MaxBatch)}
		}
	}
	b.gathered.Written = append(b.gathered.Written, w)
	return b.gathered
}

// Gathered returns the elements that are gathered.
func (b *Batches) Gathered() []Written {
	if b.gathered == nil {
		return nil
	}
	return b.gathered.Written
}

// Revoke returns what was gathered, for the sender to invalidate; nil if there is
// nothing.
func (b *Batches) Revoke() *Batch {
	t := b.gathered
	if t != nil {
		b.revoking = append(b.revoking, t)
		b.gathered = nil
	}
	return t
}

// Revoked records that the windows of the oldest batch with the sender are invalid.
func (b *Batches) Revoked() { b.revoking = slices.Delete(b.revoking, 0, 1) }

// Abandoned returns the batches whose elements the peer can still write.
func (b *Batches) Abandoned() []*Batch {
	b.Revoke()
	return b.revoking
}

// Rebound releases the elements of a batch, which can be written again, to be
// returned.
func (b *Batch) Rebound(r *Returns) {
	for i := range b.Written {
		w := &b.Written[i]
		w.Local.Elements.Release(w.Element)
		if w.Indicated {
			r.Indicated(w.Local, w.Last)
		}
	}
}

// Put takes a batch back that nobody uses any more.
func (b *Batches) Put(t *Batch) {
	clear(t.Written)
	t.Written = t.Written[:0]
	b.spare = append(b.spare, t)
}
