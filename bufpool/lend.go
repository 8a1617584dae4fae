package bufpool

import (
	"cmp"
	"fmt"
	"slices"
)

// This file handles the pools that this side lends.

// lend starts to create a pool that the peer asks for, if a reference is free.
func (p *Pools) lend(e *Event, out []Action) []Action {
	var l *Local
	if !p.ending {
		l = p.newLocal(e.Channel)
	}
	if l == nil {
		p.count.Refused++
		return out
	}
	l.Extra = true
	return append(out, Action{Do: Make, Local: l, Channel: e.Channel, Size: e.Size, Elements: e.Elements})
}

// ready continues with a pool that the peer can write to once it is offered.
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
	// One-touch pools are offered one after the other, those with the largest elements first.
	slices.SortStableFunc(ready, func(a, b *Local) int {
		return cmp.Compare(b.Elements.ElementSize(), a.Elements.ElementSize())
	})
	sending := len(p.unsent) > 0
	p.unsent = append(p.unsent, ready...)
	if sending {
		return out
	}
	return p.sendKeys(out)
}

func (p *Pools) sendKeys(out []Action) []Action {
	if len(p.unsent) == 0 {
		return out
	}
	return append(out, Action{Do: SendKeys, Local: p.unsent[0]})
}

func (p *Pools) offer(l *Local, out []Action) []Action {
	l.state = localOffered
	return append(out, Action{Do: Offer, Local: l})
}

// flushIdle starts to take back a pool that was lent on request, if it has been idle for
// long, or if another session needs memory (tight).
func (p *Pools) flushIdle(tight bool, out []Action) []Action {
	for _, l := range p.local {
		if l == nil || !l.Extra || l.state != localOffered {
			continue
		}
		if l.idle++; l.Elements.Used() {
			l.idle = 0
		}
		if (l.idle >= 2*p.cfg.IdleTicks || tight) && !p.ownFlush.awaited {
			out = p.flushLocal([]*Local{l}, out)
		}
	}
	return out
}

// flushLocal requests that the peer stops using pools.
func (p *Pools) flushLocal(pools []*Local, out []Action) []Action {
	refs := make([]uint32, len(pools))
	for i, l := range pools {
		l.state, refs[i] = localFlushing, l.Ref
	}
	p.ownFlush.local = pools
	return p.request(refs, out)
}

// drain starts to end a pool that the peer has stopped using.
func (p *Pools) drain(l *Local, out []Action) []Action {
	l.state = localDraining
	return append(out, Action{Do: Drain, Local: l})
}

// drained continues when the receiver has processed everything in a pool.
func (p *Pools) drained(l *Local, out []Action) []Action {
	l.state = localRevoking
	if len(l.Windows) == 0 {
		out = append(out, Action{Do: Deregister, Local: l})
	}
	if l.answers {
		out = p.finished(out)
	}
	switch {
	case len(l.Windows) == 0:
	case !p.cfg.Invalidates:
		out = append(out, Action{Do: Unbind, Local: l})
	case l.invalidated:
		out = append(out, Action{Do: Deregister, Local: l})
	}
	return out
}

// invalidated handles the peer's message that has invalidated the window of a pool. The
// device has already invalidated it, and it must not be invalidated again.
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
