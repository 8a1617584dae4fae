package bufpool

import (
	"errors"

	"github.com/splitnic/splitnic/fabric"
)

// localState is the state of a local pool: see Pools.
type localState uint8

const (
	localMade     localState = iota // not offered yet
	localOffered                    // offered, or about to be
	localFlushing                   // the peer is asked to stop using it
	localDraining                   // the peer has stopped; the receiver processes what has arrived
	localRevoking                   // unused; its windows are being invalidated, or it is being deregistered
)

// Local is a pool that this side lends. It has its own memory and region, so that every
// device limits the peer to the memory that it was lent. The exported fields are set before
// the event Registered and do not change later, except Keys.
type Local struct {
	Ref      uint32
	Channel  int
	Extra    bool      // lent on request; ends when it is idle
	Elements *Elements // used by the receiver of the channel
	Arena    *Arena
	Regions  []fabric.Region // one, or one for each window if the device does not enforce the windows' bounds
	Windows  []fabric.Window // one, or with OneTouch one for each element; none with protection region
	Keys     []uint32        // keys of the bound windows; used by the sender of the channel, which binds them

	OneTouch bool

	// Used by Pools only.
	state       localState
	idle        int  // ticks without use
	answers     bool // part of the peer's flush
	invalidated bool // the peer has invalidated its window
}

// Register registers the pool's memory with a device, as a number of regions of equal size,
// and creates windows, which are not bound yet. After an error, Deregister closes what was
// created.
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

// Span returns the part of a region that window i is bound to.
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

// KeyFollows reports whether the pool is offered without its key, which is sent behind the
// bind of its window. That is so if both sides have agreed on it and the peer has asked for
// the pool. The first pools are offered with their keys, because nothing may be sent on a
// data channel before.
func (l *Local) KeyFollows(agreed bool) bool { return agreed && l.Extra && len(l.Windows) > 0 }

// Element returns the memory of an element.
func (l *Local) Element(i uint16) []byte {
	size := l.Elements.ElementSize()
	return l.Arena.Bytes()[int(i)*size:][:size]
}

// Deregister closes the windows and the regions. It does not invalidate windows: one that
// the peer has invalidated must not be invalidated again, and closing ends the others.
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

// LentSize returns the size of the elements that are lent if the peer asks for elements of
// size asked.
func LentSize(asked int) int { return roundUp(asked, 64) }
