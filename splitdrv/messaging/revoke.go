package messaging

import (
	"sync/atomic"
	"time"

	"github.com/splitnic/splitnic/bufpool"
)

// revocations are the batches of elements, of one-touch pools, whose windows have to be
// invalid before a receiver looks at them. Each element is behind a window of its own, and
// travels in a bufpool.Batch between the channel's receiver and its sender, which alone posts
// to the send queue. They are the receiver's goroutine's.
type revocations struct {
	sender  *queue[sqRequest] // of the channel
	count   *rxCounters
	batches bufpool.Batches
	longest atomic.Uint64 // nanoseconds, of all revocations; others read it
}

// collect puts an element that was consumed in a batch, whose windows revoke has invalidated.
func (v *revocations) collect(w bufpool.Written) {
	if len(v.batches.Gathered()) == bufpool.MaxBatch {
		v.revoke()
	}
	if b := v.batches.Gather(w); len(b.Written) == 1 {
		b.Begun = time.Now()
	}
}

// revoke has the sender invalidate the windows of what was gathered.
func (v *revocations) revoke() {
	if b := v.batches.Revoke(); b != nil {
		v.sender.put(sqRequest{kind: sqRevoke, batch: b})
	}
}

// invalid says that nobody can write the elements of a batch any more.
func (v *revocations) invalid(b *bufpool.Batch) {
	v.batches.Revoked()
	v.measure(time.Since(b.Begun))
}

// rebind has the sender bind the windows of a batch again.
func (v *revocations) rebind(b *bufpool.Batch) { v.sender.put(sqRequest{kind: sqRebind, batch: b}) }

// measure counts a batch that took so long. A second write to one of its
// elements may have been accepted all that time, and of what was written only the
// last is seen.
func (v *revocations) measure(took time.Duration) {
	n := uint64(max(took, 0))
	v.count.Revocations.Add(1)
	v.count.RevocationTime.Add(n)
	if n > v.longest.Load() { // nobody else writes it
		v.longest.Store(n)
	}
}
