package messaging

import (
	"slices"
	"sync/atomic"

	"github.com/splitnic/splitnic/bufpool"
)

// adopted are the local pools of a data channel that its receiver has adopted. They are
// the receiver's goroutine's, but for what others read.
type adopted struct {
	channel  int
	first    uint32                           // the channel's first reference
	pools    []*bufpool.Local                 // by reference, from the first; nil where none is lent
	local    atomic.Pointer[[]*bufpool.Local] // those that there are, for others to read; replaced as a whole
	elements atomic.Int64                     // of those
	windowed []*bufpool.Local                 // those with windows that may be bound
}

func (a *adopted) init(channel int, first uint32, most int) {
	a.channel, a.first, a.pools = channel, first, make([]*bufpool.Local, most)
	a.local.Store(new([]*bufpool.Local))
}

// find finds a pool that the peer may write, counted from the channel's first.
func (a *adopted) find(class uint32) (*bufpool.Local, error) {
	if class >= uint32(len(a.pools)) || a.pools[class] == nil {
		return nil, channelViolation(a.channel, bufpool.ErrPool, "pool %d", class+a.first)
	}
	return a.pools[class], nil
}

// add takes a pool into service.
func (a *adopted) add(p *bufpool.Local) {
	a.pools[p.Ref-a.first] = p
	pools := append(slices.Clone(*a.local.Load()), p)
	a.local.Store(&pools)
	a.elements.Add(int64(p.Elements.Len()))
	if len(p.Windows) > 0 {
		a.windowed = append(a.windowed, p)
	}
}

// retire records that the peer has stopped using a pool.
func (a *adopted) retire(p *bufpool.Local) { a.pools[p.Ref-a.first] = nil }

// retiring reports whether a pool is in service that the peer has stopped using.
func (a *adopted) retiring(p *bufpool.Local) bool {
	return a.pools[p.Ref-a.first] != p && slices.Contains(*a.local.Load(), p)
}

// remove takes a pool out of service, and forgets its windows unless the peer has still
// to invalidate them.
func (a *adopted) remove(p *bufpool.Local, invalidates bool) {
	pools := slices.DeleteFunc(slices.Clone(*a.local.Load()), func(o *bufpool.Local) bool { return o == p })
	a.local.Store(&pools)
	a.elements.Add(-int64(p.Elements.Len()))
	if len(p.Windows) > 0 && (!invalidates || !p.Windows[0].Bound()) {
		a.dropWindows(p)
	}
}

// invalidated finds the pool with a window of which the peer has invalidated the key,
// and has that hear of it before anything else: whatever comes, it must not be
// invalidated again. It is nil if there is none.
func (a *adopted) invalidated(key uint32) (found *bufpool.Local) {
	for _, p := range a.windowed {
		for _, w := range p.Windows {
			if w.RKey() == key {
				w.Invalidated()
				found = p
			}
		}
	}
	if found != nil && !slices.Contains(*a.local.Load(), found) {
		a.dropWindows(found)
	}
	return found
}

func (a *adopted) dropWindows(p *bufpool.Local) {
	a.windowed = slices.DeleteFunc(a.windowed, func(o *bufpool.Local) bool { return o == p })
}
