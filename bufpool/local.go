package bufpool

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

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

// lend begins a pool that the peer asks for, if there is a place for it.
func (p *Pools) lend(e *Event, out []Action) []Action {
	l := p.place(e.Channel)
	if l == nil {
		p.count.Refused++
		return out
	}
	l.Extra = true
	return append(out, Action{Do: Make, Local: l, Channel: e.Channel, Size: e.Size, Elements: e.Elements})
}

// ready goes on with a pool that the peer can write to, if it knows how to.
func (p *Pools) ready(l *Local, out []Action) []Action {
	ready := []*Local{l}
	if !l.Extra {
		if p.unready--; p.unready > 0 {
			return out
		}
		ready = slices.DeleteFunc(slices.Clone(p.local), func(o *Local) bool { return o == nil || o.Extra })
	}
	if !p.cfg.OneTouch {
		for _, l := range ready {
			out = p.offer(l, out)
		}
		return out
	}
	// They are offered one by one.
	slices.SortStableFunc(ready, func(a, b *Local) int {
		return cmp.Compare(b.Elements.ElementSize(), a.Elements.ElementSize())
	})
	telling := len(p.untold) > 0
	p.untold = append(p.untold, ready...)
	if telling {
		return out
	}
	return p.tell(out)
}

func (p *Pools) tell(out []Action) []Action {
	if len(p.untold) == 0 {
		return out
	}
	return append(out, Action{Do: Tell, Local: p.untold[0]})
}

func (p *Pools) offer(l *Local, out []Action) []Action {
	l.state = localOffered
	return append(out, Action{Do: Offer, Local: l})
}

// takeBack takes back a pool that was lent on request and is not used any more, or
// whose memory somebody else needs.
func (p *Pools) takeBack(tight bool, out []Action) []Action {
	for _, l := range p.local {
		if l == nil || !l.Extra || l.state != localOffered {
			continue
		}
		if l.idle++; l.Elements.Used() {
			l.idle = 0
		}
		if (l.idle >= 2*p.cfg.IdleTicks || tight) && !p.awaited && p.taking == nil {
			l.state, p.taking = localFlushing, l
			out = p.request(l.Ref, out)
		}
	}
	return out
}

// drain begins the end of a pool that the peer has stopped using.
func (p *Pools) drain(l *Local, out []Action) []Action {
	l.state = localDraining
	return append(out, Action{Do: Drain, Local: l})
}

// drained goes on when nothing uses the pool any more but its windows.
func (p *Pools) drained(l *Local, out []Action) []Action {
	l.state = localRevoking
	if len(l.Windows) == 0 {
		out = append(out, Action{Do: Deregister, Local: l})
	}
	if l.answers {
		out = p.done(out)
	}
	p.took()
	switch {
	case len(l.Windows) == 0:
	case !p.cfg.Invalidates:
		out = append(out, Action{Do: Unbind, Local: l})
	case l.invalidated:
		out = append(out, Action{Do: Deregister, Local: l})
	}
	return out
}

// took lets the next pool be taken back, if the last one is drained and the peer's
// reply has come, in either order.
func (p *Pools) took() {
	if l := p.taking; l != nil && l.state == localRevoking && (!p.awaited || p.given != nil) {
		p.taking = nil
	}
}

// invalidated hears that the peer has invalidated a pool's window. The device has
// done it already: it must not be invalidated again.
func (p *Pools) invalidated(l *Local, out []Action) ([]Action, error) {
	if !p.cfg.Invalidates || l.invalidated || l.state < localFlushing {
		return out, fmt.Errorf("%w: that of pool %d", ErrInvalidated, l.Ref)
	}
	l.invalidated = true
	if l.state != localRevoking {
		return out, nil
	}
	return append(out, Action{Do: Deregister, Local: l}), nil
}

// LentSize is the size of the elements that are lent where some of that size are
// asked for.
func LentSize(asked int) int { return roundUp(asked, 64) }
