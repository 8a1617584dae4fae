package messaging

import (
	"slices"

	"github.com/splitnic/splitnic/bufpool"
)

// invalidated hears that a message of the peer's has invalidated a key. The
// device has done it already; that is what the peer owes for a pool whose flush
// is under way, and breaks the protocol otherwise.
func (r *receiver) invalidated(key uint32) error {
	var l *bufpool.Local
	for _, o := range r.windowed {
		for _, w := range o.Windows {
			if w.RKey() == key {
				// Before anything else: whatever comes, it must not be invalidated again.
				w.Invalidated()
				l = o
			}
		}
	}
	if l == nil {
		return r.violation(ErrInvalidated, "key %#x", key)
	}
	if !slices.Contains(*r.local.Load(), l) {
		r.dropWindows(l)
	}
	if err := r.c.pools.step(bufpool.Event{Kind: bufpool.Invalidated, Local: l}); err != nil {
		return r.violation(err, "key %#x", key)
	}
	r.count.WindowsInvalidatedByPeer.Add(1)
	return nil
}

// dropWindows forgets the windows of a pool that the receiver has forgotten, when
// the peer has invalidated them, or has not to.
func (r *receiver) dropWindows(l *bufpool.Local) {
	r.windowed = slices.DeleteFunc(r.windowed, func(o *bufpool.Local) bool { return o == l })
}
