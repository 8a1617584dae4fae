package messaging

import (
	"slices"

	"github.com/splitnic/splitnic/protocol"
)

// indicatesPerUpdate is after how many BufferRDMAIndicates the target returns
// what is free in any case: it acknowledges them, and the initiator, which may
// have twice as many unacknowledged, does not have to stop.
const indicatesPerUpdate = protocol.IndicatesPerChannel / 2

// readMail does what the control handler and the keeper have for the receiver.
func (r *receiver) readMail() error {
	letters := r.mail.take()
	r.mailed.Store(false)
	sent := r.sent.Load()
	// What has arrived on the data channel is older than what the letters are
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
	for i := range letters {
		if err := r.read(&letters[i], sent); err != nil {
			return err
		}
	}
	if err := r.flush(); err != nil {
		return err
	}
	return r.giveBack()
}

// read does what a letter says. sent is what letterSent is about.
func (r *receiver) read(l *letter, sent uint64) error {
	switch l.kind {
	case letterIndicated:
		return r.takeIndicated(l)
	case letterAdopt:
		if err := r.adopt(l.pool); err != nil {
			return err
		}
		return l.job.done()
	case letterRetire:
		if err := r.flush(); err != nil {
			return err
		}
		if l.pool.touch && l.pool.loan.Ledger().Consumed > 0 {
			// Not before its windows are bound again, which is when they all can be
			// invalidated.
			l.pool.retiring = l.job
			r.pools[l.pool.ref-r.c.firstRef(r.ch.number)] = nil
			return nil
		}
		return r.retire(l.pool, l.job)
	case letterSealed:
		return r.sealed(l.touch)
	case letterRenewed:
		return r.renewed(l.touch)
	case letterAwait:
		return r.await(l.pool, l.job)
	default:
		return r.sentSoFar(sent)
	}
}

// retire ends the use of a pool of which nothing is consumed.
func (r *receiver) retire(p *lentPool, job *retirement) error {
	// The peer may wait for what it indicated there.
	if r.urgent || r.messages > 0 {
		if err := r.acknowledge(); err != nil {
			return err
		}
	}
	r.forget(p)
	return job.done()
}

// takeIndicated handles a transfer that was indicated on the control channel.
func (r *receiver) takeIndicated(l *letter) error {
	p, err := r.consume(l.class, l.elem, l.length)
	if err != nil {
		return err
	}
	r.count.indicated.Add(1)
	if p.touch {
		r.touchIndicated(l.last)
		return nil
	}
	r.answerIndicated(p, l.last)
	return nil
}

// answerIndicated sees to it that an update acknowledges a transfer that was
// indicated on the control channel, the last one of its message or not, and
// returns its element, which is free by then.
func (r *receiver) answerIndicated(p *lentPool, last bool) {
	r.lastTaken = p
	if last {
		r.messages++
	}
	// In mode imm the peer waits for this very element.
	r.urgent = r.urgent || r.c.cfg.Mode == protocol.ModeImm || r.messages >= indicatesPerUpdate
}

// adopt takes a pool into service and posts the receives that its elements
// stand for.
func (r *receiver) adopt(p *lentPool) error {
	r.pools[p.ref-r.c.firstRef(r.ch.number)] = p
	lent := append(slices.Clone(*r.lent.Load()), p)
	r.lent.Store(&lent)
	r.elements.Add(int64(p.loan.Len()))
	if len(p.windows) > 0 {
		r.windowed = append(r.windowed, p)
	}
	switch r.c.cfg.Mode {
	case protocol.ModeIndicate:
		return nil
	case protocol.ModeSend, protocol.ModeSendUC:
		return r.postBuffers(p)
	default:
		n := p.loan.Len() - r.spare
		r.spare = max(-n, 0)
		return r.post(n)
	}
}

// acknowledge returns what is free, whether much or little.
func (r *receiver) acknowledge() error {
	for r.urgent = true; r.urgent; {
		if err := r.c.control.sendUpdateWaiting(r); err != nil {
			return err
		}
		r.count.updates.Add(1)
	}
	return nil
}

// forget takes a pool out of service.
func (r *receiver) forget(p *lentPool) {
	r.pools[p.ref-r.c.firstRef(r.ch.number)] = nil
	lent := slices.DeleteFunc(slices.Clone(*r.lent.Load()), func(o *lentPool) bool { return o == p })
	r.lent.Store(&lent)
	r.elements.Add(-int64(p.loan.Len()))
	if r.c.cfg.Mode == protocol.ModeImm {
		r.spare += p.loan.Len()
	}
	r.release(p)
	if r.lastTaken == p {
		r.lastTaken = nil
	}
}

// indicated passes on a BufferRDMAIndicate of which the letters are made. More
// than there are elements cannot be meant.
func (r *receiver) indicated(letters []letter) error {
	if r.mail.len()+len(letters) > int(r.elements.Load())+r.c.cfg.MaxPools+protocol.IndicatesPerChannel {
		return r.violation(ErrIndications, "%d more, with %d elements in all", len(letters), r.elements.Load())
	}
	r.mail.put(letters...)
	return nil
}

// violationOfSequence is about a message of one of the send modes.
func (r *receiver) violationOfSequence(seq uint64) error {
	return r.violation(ErrSequence, "message %d where %d was expected", seq, r.expected)
}
