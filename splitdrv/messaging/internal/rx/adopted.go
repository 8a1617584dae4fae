package rx

import (
	"slices"
	"sync/atomic"

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

func (a *adopted) init(channel int, first uint32, most int) {
	a.channel, a.first, a.pools = channel, first, make([]*bufpool.Local, most)
	a.local.Store(new([]*bufpool.Local))
}

// Pools returns all pools. The slice does not change. Any goroutine may call it.
func (a *adopted) Pools() []*bufpool.Local { return *a.local.Load() }

// find returns a pool that the peer may write. class is its reference minus first.
func (a *adopted) find(class uint32) (*bufpool.Local, error) {
	if class >= uint32(len(a.pools)) || a.pools[class] == nil {
		return nil, core.ChannelViolation(a.channel, bufpool.ErrPool, "pool %d", class+a.first)
	}
	return a.pools[class], nil
}

// add adds a pool.
func (a *adopted) add(p *bufpool.Local) {
	a.pools[p.Ref-a.first] = p
	pools := append(slices.Clone(a.Pools()), p)
	a.local.Store(&pools)
	a.elements.Add(int64(p.Elements.Len()))
	if len(p.Windows) > 0 {
		a.windowed = append(a.windowed, p)
	}
}

// retire records that the peer has stopped using a pool.
func (a *adopted) retire(p *bufpool.Local) { a.pools[p.Ref-a.first] = nil }

// retiring reports whether the peer has stopped using a pool that is not removed yet.
func (a *adopted) retiring(p *bufpool.Local) bool {
	return a.pools[p.Ref-a.first] != p && slices.Contains(a.Pools(), p)
}

// remove removes a pool. It keeps the pool in windowed if the peer still has to invalidate
// its window.
func (a *adopted) remove(p *bufpool.Local, invalidates bool) {
	pools := slices.DeleteFunc(slices.Clone(a.Pools()), func(o *bufpool.Local) bool { return o == p })
	a.local.Store(&pools)
	a.elements.Add(-int64(p.Elements.Len()))
	if len(p.Windows) > 0 && (!invalidates || !p.Windows[0].Bound()) {
		a.dropWindows(p)
	}
}

// invalidated returns the pool with the window whose key the peer has invalidated, or nil
// if there is none. It first marks the window as invalidated, because a window must not be
// invalidated twice, whatever happens next.
func (a *adopted) invalidated(key uint32) (found *bufpool.Local) {
	for _, p := range a.windowed {
		for _, w := range p.Windows {
			if w.RKey() == key {
				w.Invalidated()
				found = p
			}
		}
	}
	if found != nil && !slices.Contains(a.Pools(), found) {
		a.dropWindows(found)
	}
	return found
}

func (a *adopted) dropWindows(p *bufpool.Local) {
	a.windowed = slices.DeleteFunc(a.windowed, func(o *bufpool.Local) bool { return o == p })
}
