package messaging

import (
	"slices"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/protocol"
)

// readQueue does what the control handler and the pool manager have for the receiver.
func (r *receiver) readQueue() error {
	events := r.queue.take()
	r.mailed.Store(false)
	sent := r.sent.Load()
	// What has arrived on the data channel is older than what the events are
	// about: a transfer is indicated, and a pool flushed, after everything
	// written before has completed at the peer. There is no more of it than
	// receives, and a peer that never stops sending is not waited for.
	for taken := 0; taken < r.c.cfg.receives(); {
		n, err := r.poll()
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
		if err := r.take(r.comps[:n]); err != nil {
			return err
		}
		taken += n
	}
	for i := range events {
		if err := r.read(&events[i], sent); err != nil {
			return err
		}
	}
	if err := r.flush(); err != nil {
		return err
	}
	return r.giveBack()
}

// read does what an event asks for. sent is what rxSent is about.
func (r *receiver) read(l *rxEvent, sent uint64) error {
	switch l.kind {
	case rxIndicated:
		return r.takeIndicated(l)
	case rxAdopt:
		if err := r.adopt(l.pool); err != nil {
			return err
		}
		return r.c.pools.step(bufpool.Event{Kind: bufpool.Adopted, Local: l.pool})
	case rxDrain:
		if err := r.flush(); err != nil {
			return err
		}
		r.pools[l.pool.Ref-r.c.firstRef(r.ch.number)] = nil
		if l.pool.OneTouch && l.pool.Elements.Ledger().Consumed > 0 {
			// Not before its windows are bound again, which is when they all can be
			// invalidated.
			return nil
		}
		return r.retire(l.pool)
	case rxRevoked:
		return r.revoked(l.batch)
	case rxRebound:
		return r.rebound(l.batch)
	default:
		return r.sentSoFar(sent)
	}
}

// retired reports whether the peer has stopped using a pool.
func (r *receiver) retired(p *bufpool.Local) bool {
	return r.pools[p.Ref-r.c.firstRef(r.ch.number)] != p
}

// retire ends the use of a pool of which nothing is consumed.
func (r *receiver) retire(p *bufpool.Local) error {
	for r.returns.Retire() {
		if err := r.c.control.sendUpdateWaiting(r); err != nil {
			return err
		}
		r.count.UpdatesSent.Add(1)
	}
	r.forget(p)
	return r.c.pools.step(bufpool.Event{Kind: bufpool.Drained, Local: p})
}

// takeIndicated handles a transfer that was indicated on the control channel.
func (r *receiver) takeIndicated(l *rxEvent) error {
	p, err := r.consume(l.class, l.elem, l.length)
	if err != nil {
		return err
	}
	r.count.RxIndicated.Add(1)
	if p.OneTouch {
		r.gatheredIndicated(l.last)
		return nil
	}
	r.returns.Indicated(p, l.last)
	return nil
}

// adopt takes a pool into service and posts the receives that its elements
// stand for.
func (r *receiver) adopt(p *bufpool.Local) error {
	r.pools[p.Ref-r.c.firstRef(r.ch.number)] = p
	pools := append(slices.Clone(*r.local.Load()), p)
	r.local.Store(&pools)
	r.elements.Add(int64(p.Elements.Len()))
	if len(p.Windows) > 0 {
		r.windowed = append(r.windowed, p)
	}
	switch r.c.cfg.Mode {
	case protocol.ModeIndicate:
		return nil
	case protocol.ModeSend, protocol.ModeSendUC:
		return r.postBuffers(p)
	default:
		n := p.Elements.Len() - r.spare
		r.spare = max(-n, 0)
		return r.post(n)
	}
}

// forget takes a pool out of service.
func (r *receiver) forget(p *bufpool.Local) {
	pools := slices.DeleteFunc(slices.Clone(*r.local.Load()), func(o *bufpool.Local) bool { return o == p })
	r.local.Store(&pools)
	r.elements.Add(-int64(p.Elements.Len()))
	if r.c.cfg.Mode == protocol.ModeImm {
		r.spare += p.Elements.Len()
	}
	if len(p.Windows) > 0 && (!r.c.cfg.invalidates() || !p.Windows[0].Bound()) {
		r.dropWindows(p)
	}
	r.returns.Forget(p)
}

// indicated passes on a BufferRDMAIndicate of which the events are made. More
// than there are elements cannot be meant.
func (r *receiver) indicated(events []rxEvent) error {
	if r.queue.len()+len(events) > int(r.elements.Load())+r.c.cfg.MaxPools+protocol.IndicatesPerChannel {
		return r.violation(ErrIndications, "%d more, with %d elements in all", len(events), r.elements.Load())
	}
	r.queue.put(events...)
	return nil
}
