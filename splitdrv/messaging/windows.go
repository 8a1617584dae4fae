package messaging

import (
	"errors"
	"slices"

	"github.com/splitnic/splitnic/fabric"
)

// register makes a pool known to the device, with the windows that protect it,
// which are not bound yet.
func (l *lending) register(p *lentPool) error {
	cfg := &l.c.cfg
	access := fabric.LocalWrite | fabric.RemoteWrite
	windows, regions := 0, 1
	switch {
	case cfg.Mode.Sends():
		access = fabric.LocalWrite // written through the receive queue alone
	case cfg.Protection == ProtectWindow:
		// Without a key that the peer could use beside that of the window.
		access, windows = fabric.LocalWrite|fabric.WindowBind, 1
	case cfg.Protection == ProtectOneTouch:
		access, windows, p.touch = fabric.LocalWrite|fabric.WindowBind, p.loan.Len(), true
		if !cfg.Device.Limits().WindowBounds {
			regions = windows // so that something bounds each window
		}
	}
	size := p.loan.ElementSize() * p.loan.Len() / regions
	for i := range regions {
		r, err := l.c.domain.Register(p.arena.Bytes()[i*size:][:size], access)
		if err != nil {
			return err
		}
		p.regions = append(p.regions, r)
	}
	for range windows {
		w, err := l.c.domain.NewWindow()
		if err != nil {
			return err
		}
		p.windows = append(p.windows, w)
	}
	p.keys = make([]uint32, windows)
	return nil
}

// deregister is the opposite of register. No window is invalidated for that:
// one that the peer has invalidated must not be a second time, and what is
// bound still is closed by its owner.
func (p *lentPool) deregister() error {
	var errs []error
	for _, w := range p.windows {
		errs = append(errs, w.Close())
	}
	for _, r := range p.regions {
		errs = append(errs, r.Close())
	}
	return errors.Join(errs...)
}

// expose makes pools usable by the peer, whose channels' receivers have adopted
// them, and then goes on, on whatever goroutine is the last to have done its
// part. The peer must not hear of them before: the keys are sent on the control
// channel, which is not ordered with the data channels that bind them.
func (l *lending) expose(pools []*lentPool, then func() error) error {
	job := &retirement{then: then}
	job.left.Store(1)
	for _, p := range pools {
		if len(p.windows) > 0 {
			job.left.Add(1)
			p.ch.tx.mail.put(errand{kind: errandBind, lent: p, job: job})
		}
	}
	return job.done()
}

// withdraw ends what expose began, for a pool with windows that the peer has
// stopped using and its receiver has forgotten, and disposes of it.
func (l *lending) withdraw(p *lentPool) {
	job := &retirement{then: func() error {
		l.c.keeper.post(func() error { return l.dispose(p) })
		return nil
	}}
	job.left.Store(1)
	if l.c.cfg.invalidates() {
		// The message that does it may have come already, or is on its way. There
		// is no LOCAL_INV that could cross it.
		p.ch.rx.mail.put(letter{kind: letterAwait, pool: p, job: job})
		return
	}
	p.ch.tx.mail.put(errand{kind: errandUnbind, lent: p, job: job})
}

// ending reports whether a pool's flush is under way.
func (l *lending) ending(p *lentPool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return p.state == poolFlushing || p.state == poolRetiring
}

// release forgets the windows of a pool that the receiver forgets, unless the
// peer has still to invalidate them.
func (r *receiver) release(p *lentPool) {
	p.forgotten = true
	if !r.c.cfg.invalidates() || p.invalidated {
		r.drop(p)
	}
}

// drop is the end of release.
func (r *receiver) drop(p *lentPool) {
	r.windowed = slices.DeleteFunc(r.windowed, func(o *lentPool) bool { return o == p })
}

// await has job follow when the peer has invalidated a pool's window.
func (r *receiver) await(p *lentPool, job *retirement) error {
	if p.invalidated {
		return job.done()
	}
	p.awaited = job
	return nil
}

// invalidated hears that a message of the peer's has invalidated a key. The
// device has done it already; that is what the peer owes for a pool whose flush
// is under way, and breaks the protocol otherwise.
func (r *receiver) invalidated(key uint32) error {
	var p *lentPool
	for _, o := range r.windowed {
		for _, w := range o.windows {
			if w.RKey() == key {
				// Before anything else: whatever comes, it must not be invalidated again.
				w.Invalidated()
				p = o
			}
		}
	}
	if p == nil {
		return r.violation(ErrInvalidated, "key %#x", key)
	}
	if !r.c.cfg.invalidates() || p.invalidated || !r.c.lending.ending(p) {
		return r.violation(ErrInvalidated, "key %#x of pool %d", key, p.ref)
	}
	p.invalidated = true
	r.count.invalidated.Add(1)
	if p.forgotten {
		r.drop(p)
	}
	if p.awaited != nil {
		return p.awaited.done()
	}
	return nil
}
