package rx

import (
	"sync/atomic"
	"time"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/core"
)

// revocations has the consumed elements of one-touch pools, in batches. The receiver must
// not read an element before its window is invalidated. A batch goes from the receiver to
// the sender of the channel, which posts the invalidations, and back. Only the receiver's
// goroutine uses revocations.
type revocations struct {
	sender  *core.Queue[bufpool.Action] // queue of the channel's sender
	count   *core.RxCount
	batches bufpool.Batches
	longest atomic.Uint64 // longest revocation in nanoseconds; other goroutines read it
}

// collect adds a consumed element to the next batch.
func (v *revocations) collect(w bufpool.Written) {
	if len(v.batches.Gathered()) == bufpool.MaxBatch {
		v.revoke()
	}
	if b := v.batches.Gather(w); len(b.Written) == 1 {
		b.Begun = time.Now()
	}
}

// revoke requests the invalidation of the windows of the collected elements.
func (v *revocations) revoke() {
	if b := v.batches.Revoke(); b != nil {
		v.sender.Put(bufpool.Action{Do: bufpool.Revoke, Batch: b})
	}
}

// invalid records that the windows of a batch are invalidated.
func (v *revocations) invalid(b *bufpool.Batch) {
	v.batches.Revoked()
	v.measure(time.Since(b.Begun))
}

// rebind requests that the windows of a batch are bound again.
func (v *revocations) rebind(b *bufpool.Batch) {
	v.sender.Put(bufpool.Action{Do: bufpool.Rebind, Batch: b})
}

// measure counts a revocation that took the given time. Until its end the device accepted
// further writes to the elements, of which only the last one is seen.
func (v *revocations) measure(took time.Duration) {
	n := uint64(max(took, 0))
	v.count.Revocations.Add(1)
	v.count.RevocationTime.Add(n)
	if n > v.longest.Load() { // nobody else writes it
		v.longest.Store(n)
	}
}
