package bufpool

import (
	"slices"
	"time"

	"github.com/splitnic/splitnic/fabric"
)

// MaxBatch is the largest number of elements of a Batch. The send queue has room for twice
// as many work requests in addition to those for frames.
const MaxBatch = 64

// Batch is a group of elements of one-touch pools that the peer has written and that are not
// lent again yet. An element is read only after its window was invalidated, and returned to
// the peer only after its window is bound again. In between it is in state consumed. The
// steps are:
//
//	receiver  consumes and gathers elements             Batches.Gather, Revoke
//	sender    invalidates their windows (LOCAL_INV), and waits for the last one (action Revoke)
//	receiver  checks and delivers their contents        Batches.Revoked
//	sender    binds the windows with their next keys, and waits for the last one (action Rebind)
//	receiver  releases the elements, which an update returns
type Batch struct {
	Written  []Written
	Requests []fabric.SendWR // the sender's work requests, posted in one call
	Begun    time.Time       // time at which the first of Written was gathered
}

// Written is an element in a Batch.
type Written struct {
	Local     *Local
	Element   int
	Data      []byte // contents; must not be read before the window is invalidated
	Number    uint64 // of the transfer, where transfers are sealed
	Indicated bool   // indicated on the control channel
	Last      bool   // Indicated, and the last one of its message
}

// Batches has the batches of a data channel. Only its receiver uses it.
type Batches struct {
	gathered *Batch   // not passed to the sender yet
	revoking []*Batch // the sender invalidates their windows; oldest first
	spare    []*Batch // not in use
}

// Gather adds a consumed element to the next batch, which must have fewer than MaxBatch
// elements, and returns the batch.
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

// Gathered returns the elements of the next batch.
func (b *Batches) Gathered() []Written {
	if b.gathered == nil {
		return nil
	}
	return b.gathered.Written
}

// Revoke returns the next batch, whose windows the sender has to invalidate, or nil if it
// has no elements.
func (b *Batches) Revoke() *Batch {
	t := b.gathered
	if t != nil {
		b.revoking = append(b.revoking, t)
		b.gathered = nil
	}
	return t
}

// Revoked records that the windows of the oldest batch with the sender are invalidated.
func (b *Batches) Revoked() { b.revoking = slices.Delete(b.revoking, 0, 1) }

// Abandoned returns the batches whose elements the peer can still write, at the end of a
// session.
func (b *Batches) Abandoned() []*Batch {
	b.Revoke()
	return b.revoking
}

// Rebound releases the elements of a batch, whose windows are bound again, so that they can
// be returned.
func (b *Batch) Rebound(r *Returns) {
	for i := range b.Written {
		w := &b.Written[i]
		w.Local.Elements.Release(w.Element)
		if w.Indicated {
			r.Indicated(w.Local, w.Last)
		}
	}
}

// Put takes back a batch that is not used any more.
func (b *Batches) Put(t *Batch) {
	clear(t.Written)
	t.Written = t.Written[:0]
	b.spare = append(b.spare, t)
}
