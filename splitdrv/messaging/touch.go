package messaging

import (
	"fmt"
	"slices"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
)

// With protection one-touch each element is behind a window of its own. What
// the peer says to have written is looked at only when the window is invalid,
// and the element goes back to the peer only when it is bound again. In between
// it is consumed in the books of its loan:
//
//	receiver  consumes elements, gathers them in a touch
//	sender    posts a LOCAL_INV for each, and awaits the last
//	receiver  checks and delivers what is in them
//	sender    binds their windows, under the next keys, and awaits the last
//	receiver  releases the elements, which an update returns

// maxTouch is how many elements travel in one touch. So many work requests have
// room in the send queue besides those of frames, twice.
const maxTouch = 64

// touch is a number of elements on their way from being written to being lent
// again.
type touch struct {
	elems []touched
	wrs   []fabric.SendWR // the sender's
}

// touched is an element in a touch.
type touched struct {
	consumed
	data      []byte // what was written, not to be looked at before its window is invalid
	indicated bool   // on the control channel
	last      bool   // and the last one of its message
}

// touching is what a receiver has of touches; none of it is used with another
// protection.
type touching struct {
	gathered *touch   // elements that were consumed, not with the sender yet
	sealing  []*touch // with the sender, to be sealed; oldest first
	spare    []*touch // not in use
}

// touch puts an element that was consumed among those whose windows are to be
// invalidated.
func (r *receiver) touch(p *bufpool.Local, elem int, data []byte) error {
	t := r.touches.gathered
	if t != nil && len(t.elems) == maxTouch {
		r.seal()
		t = nil
	}
	if t == nil {
		if n := len(r.touches.spare); n > 0 {
			t = r.touches.spare[n-1]
			r.touches.spare = r.touches.spare[:n-1]
		} else {
			t = &touch{elems: make([]touched, 0, maxTouch), wrs: make([]fabric.SendWR, 0, maxTouch)}
		}
		r.touches.gathered = t
	}
	t.elems = append(t.elems, touched{consumed: consumed{pool: p, elem: elem}, data: data})
	return nil
}

// touchIndicated notes how the element was indicated that was touched last.
func (r *receiver) touchIndicated(last bool) {
	t := &r.touches.gathered.elems[len(r.touches.gathered.elems)-1]
	t.indicated, t.last = true, last
}

// seal has the sender invalidate the windows of what was gathered.
func (r *receiver) seal() {
	r.touches.sealing = append(r.touches.sealing, r.touches.gathered)
	r.ch.tx.mail.put(errand{kind: errandSeal, touch: r.touches.gathered})
	r.touches.gathered = nil
}

// sealed delivers what lies in elements that nobody can write any more, and has
// their windows bound again.
func (r *receiver) sealed(t *touch) error {
	rest := copy(r.touches.sealing, r.touches.sealing[1:]) // they come in order
	r.touches.sealing = r.touches.sealing[:rest]
	for i := range t.elems {
		if err := r.unpack(t.elems[i].data); err != nil {
			return err
		}
	}
	if err := r.flush(); err != nil {
		return err
	}
	r.ch.tx.mail.put(errand{kind: errandRenew, touch: t})
	return nil
}

// abandon counts the frames of a session that has ended which lie in elements
// that the peer can still write, and so are not delivered.
func (r *receiver) abandon() {
	if r.touches.gathered != nil {
		r.touches.sealing = append(r.touches.sealing, r.touches.gathered)
		r.touches.gathered = nil
	}
	for _, t := range r.touches.sealing {
		for i := range t.elems {
			// As many as the peer says; nothing follows from it but the count.
			r.count.unsealed.Add(uint64(r.framesIn(t.elems[i].data)))
		}
	}
	r.touches.sealing = nil
}

// renewed releases elements that can be written again.
func (r *receiver) renewed(t *touch) error {
	for i := range t.elems {
		e := &t.elems[i]
		e.pool.Loan.Release(e.elem)
		if e.indicated {
			r.answerIndicated(e.pool, e.last)
		}
	}
	for i := range t.elems {
		// A pool that the peer has stopped using goes with its last element.
		if p := t.elems[i].pool; r.retired(p) && p.Loan.Ledger().Consumed == 0 && slices.Contains(*r.lent.Load(), p) {
			if err := r.retire(p); err != nil {
				return err
			}
		}
	}
	clear(t.elems)
	t.elems = t.elems[:0]
	r.touches.spare = append(r.touches.spare, t)
	return nil
}

// sealOrRenew posts what an errand about a touch is about, as far as there is
// room, and reports whether that was all.
func (s *sender) sealOrRenew(e *errand) (bool, error) {
	t := e.touch
	for e.next < len(t.elems) {
		room := s.room()
		if room <= 0 {
			return false, nil
		}
		n := min(room, len(t.elems)-e.next)
		some := t.elems[e.next : e.next+n]
		e.next += n
		var err error
		if e.kind == errandSeal {
			err = s.invalidateElements(t, some)
		} else {
			err = s.bindElements(some)
		}
		if err != nil {
			return false, fmt.Errorf("windows of %d elements on data channel %d: %w", n, s.ch.number, err)
		}
	}
	letter := letter{kind: letterSealed, touch: t}
	if e.kind == errandRenew {
		letter.kind = letterRenewed
	}
	s.land(landing{letter: letter})
	return true, nil
}

// invalidateElements posts the invalidations in one go, the last of which asks
// for a completion.
func (s *sender) invalidateElements(t *touch, elems []touched) error {
	t.wrs = t.wrs[:0]
	for i := range elems {
		id, flags := s.number(i == len(elems)-1)
		t.wrs = append(t.wrs, fabric.SendWR{ID: id, Op: fabric.OpLocalInv, Flags: flags, RKey: elems[i].pool.Keys[elems[i].elem]})
	}
	s.count.invalidated.Add(uint64(len(elems)))
	_, err := s.ch.qp.PostSend(t.wrs)
	return err
}

// bindElements binds the windows of elements again, under the next keys.
func (s *sender) bindElements(elems []touched) error {
	for i := range elems {
		p, elem := elems[i].pool, elems[i].elem
		want := protocol.NextKey(p.Keys[elem])
		if err := s.bindWindow(p, elem, i == len(elems)-1); err != nil {
			return err
		}
		if got := p.Keys[elem]; got != want {
			return fmt.Errorf("the device has bound a window with key %#x, not %#x, which the peer will use: %w", got, want, fabric.ErrUnsupported)
		}
	}
	return nil
}

// onPoolKeys hears the keys of a pool that the peer is about to lend.
func (c *Conn) onPoolKeys(data []byte) protocol.CfgStatus {
	if !c.cfg.OneTouch || c.cfg.Mode.Sends() {
		return protocol.CfgUnsupported
	}
	k, err := protocol.DecodePoolKeys(data)
	if err != nil {
		return protocol.CfgInvalid
	}
	c.pools.mu.Lock()
	defer c.pools.mu.Unlock()
	if c.pools.pools.HearKeys(k) != nil {
		return protocol.CfgInvalid
	}
	return protocol.CfgOK
}
