package rx

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/core"
)

// adopted has the local pools that the receiver of a data channel has adopted. Only the
// receiver's goroutine uses it, except that other goroutines read the atomic fields.
type adopted struct {
	channel  int
	first    uint32                           // first pool reference of the channel
	pools    []*bufpool.Local                 // by reference minus first; nil if the peer may not write it
	local    atomic.Pointer[[]*bufpool.Local] // all pools; replaced as a whole
	elements atomic.Int64                     // total number of elements of local
	windowed []*bufpool.Local                 // pools with windows that may be bound
}

func (d *adopted) init(channel int, first uint32, most int) {
	d.channel, d.first, d.pools = channel, first, make([]*bufpool.Local, most)
	d.local.Store(new([]*bufpool.Local))
}

// Pools returns all pools. The slice does not change. Any goroutine may call it.
func (d *adopted) Pools() []*bufpool.Local { return *d.local.Load() }

// find returns a pool that the peer may write. class is its reference minus first.
func (d *adopted) find(class uint32) (*bufpool.Local, error) {
	if class >= uint32(len(d.pools)) || d.pools[class] == nil {
		return nil, core.ChannelViolation(d.channel, bufpool.ErrPool, "pool %d", class+d.first)
	}
	return d.pools[class], nil
}

func (d *adopted) add(p *bufpool.Local) {
	d.pools[p.Ref-d.first] = p
	pools := append(slices.Clone(d.Pools()), p)
	d.local.Store(&pools)
	d.elements.Add(int64(p.Elements.Len()))
	if len(p.Windows) > 0 {
		d.windowed = append(d.windowed, p)
	}
}

// retire records that the peer has stopped using a pool.
func (d *adopted) retire(p *bufpool.Local) { d.pools[p.Ref-d.first] = nil }

// retiring reports whether the peer has stopped using a pool that is not removed yet.
func (d *adopted) retiring(p *bufpool.Local) bool {
	return d.pools[p.Ref-d.first] != p && slices.Contains(d.Pools(), p)
}

// remove removes a pool. It keeps the pool in windowed if the peer still has to invalidate
// its window.
func (d *adopted) remove(p *bufpool.Local, invalidates bool) {
	pools := slices.DeleteFunc(slices.Clone(d.Pools()), func(o *bufpool.Local) bool { return o == p })
	d.local.Store(&pools)
	d.elements.Add(-int64(p.Elements.Len()))
	if len(p.Windows) > 0 && (!invalidates || !p.Windows[0].Bound()) {
		d.dropWindows(p)
	}
}

// invalidated returns the pool with the window whose key the peer has invalidated, or nil
// if there is none. It first marks the window as invalidated, because a window must not be
// invalidated twice, whatever happens next.
func (d *adopted) invalidated(key uint32) (found *bufpool.Local) {
	for _, p := range d.windowed {
		for _, w := range p.Windows {
			if w.RKey() == key {
				w.Invalidated()
				found = p
			}
		}
	}
	if found != nil && !slices.Contains(d.Pools(), found) {
		d.dropWindows(found)
	}
	return found
}

func (d *adopted) dropWindows(p *bufpool.Local) {
	d.windowed = slices.DeleteFunc(d.windowed, func(o *bufpool.Local) bool { return o == p })
}

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
