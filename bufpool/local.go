package bufpool

import (
	"errors"

	"github.com/splitnic/splitnic/fabric"
)

// localState says how far a local pool has got: see Pools.
type localState uint8

const (
	localMade     localState = iota // the peer does not know of it
	localOffered                    // or about to be
	localFlushing                   // the peer is asked to stop using it
	localDraining                   // the peer has stopped; the receiver takes what has come
	localRevoking                   // nobody uses it; its windows are being invalidated, or it is being deregistered
)

// Local is a pool that this side lends, with memory and a region of its own, so that
// every device bounds the peer to what it was lent. What is exported is written
// before it is Registered, but for the keys.
type Local struct {
	Ref      uint32
	Channel  int
	Extra    bool      // lent on request, and so to go back when it is not used
	Elements *Elements // the receiver's of its channel
	Arena    *Arena
	Regions  []fabric.Region // one, or one behind each window where only that bounds it
	Windows  []fabric.Window // around it, or with OneTouch around each element; none with protection region
	Keys     []uint32        // theirs, once they are bound: the sender's of its channel, who binds them

	OneTouch bool

	// The pools' own.
	state       localState
	idle        int  // ticks without use
	answers     bool // the peer's flush is about it
	invalidated bool // by a message of the peer's
}

// Register makes the pool's memory known to a device: that many equal regions, and
// windows, which are not bound yet. What was made before an error is Deregister's.
func (l *Local) Register(d fabric.Domain, access fabric.Access, regions, windows int) error {
	size := l.Elements.ElementSize() * l.Elements.Len() / regions
	for i := range regions {
		r, err := d.Register(l.Arena.Bytes()[i*size:][:size], access)
		if err != nil {
			return err
		}
		l.Regions = append(l.Regions, r)
	}
	for range windows {
		w, err := d.NewWindow()
		if err != nil {
			return err
		}
		l.Windows = append(l.Windows, w)
	}
	l.Keys = make([]uint32, windows)
	return nil
}

// Span is what window i is around.
func (l *Local) Span(i int) (r fabric.Region, addr uint64, length int) {
	r = l.Regions[0]
	switch n := l.Elements.ElementSize(); {
	case !l.OneTouch:
		return r, r.Addr(), r.Len()
	case len(l.Regions) == 1:
		return r, r.Addr() + uint64(i*n), n
	default:
		r = l.Regions[i]
		return r, r.Addr(), n
	}
}

// KeyFollows reports whether the pool is offered without its key, which follows behind
// the bind of its window, between sides that have agreed on that: if it was asked for.
// Before that, nothing travels on a data channel that the peer has not lent for.
func (l *Local) KeyFollows(agreed bool) bool { return agreed && l.Extra && len(l.Windows) > 0 }

// Element is the memory of an element.
func (l *Local) Element(i uint16) []byte {
	size := l.Elements.ElementSize()
	return l.Arena.Bytes()[int(i)*size:][:size]
}

// Deregister closes the windows and the regions. No window is invalidated for that:
// one that the peer has invalidated must not be a second time, and what is bound
// still is closed by its owner.
func (l *Local) Deregister() error {
	var errs []error
	for _, w := range l.Windows {
		errs = append(errs, w.Close())
	}
	for _, r := range l.Regions {
		errs = append(errs, r.Close())
	}
	return errors.Join(errs...)
}

// LentSize is the size of the elements that are lent where some of that size are
// asked for.
func LentSize(asked int) int { return roundUp(asked, 64) }
