package messaging

import (
	"fmt"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
)

// sort puts what has come by mail where it belongs: some pools can go only when
// their transfers have completed, the rest waits for room in the send queue at
// most.
func (s *sender) sort(mail []errand) {
	for _, e := range mail {
		if e.kind == errandRelease {
			s.releasing = append(s.releasing, e)
		} else {
			s.errands = append(s.errands, e)
		}
	}
}

// perform posts what is to be posted about windows, as far as there is room.
func (s *sender) perform() error {
	n := 0
	for n < len(s.errands) {
		done, err := s.performOne(&s.errands[n])
		if err != nil {
			return err
		}
		if !done {
			break
		}
		n++
	}
	rest := copy(s.errands, s.errands[n:])
	clear(s.errands[rest:])
	s.errands = s.errands[:rest]
	return nil
}

// performOne posts an errand, and reports whether there was room for all of it.
func (s *sender) performOne(e *errand) (bool, error) {
	switch e.kind {
	case errandInvalidate:
		return s.invalidate(e.pool)
	case errandRevoke, errandRebind:
		return s.revokeOrRebind(e)
	default:
	}
	for ; e.next < len(e.lent.Windows); e.next++ {
		room := s.room()
		if room <= 0 {
			return false, nil
		}
		last := e.next == len(e.lent.Windows)-1
		post := s.bindWindow
		if e.kind == errandUnbind {
			post = s.unbindWindow
		}
		if err := post(e.lent, e.next, last || room == 1); err != nil {
			return false, fmt.Errorf("pool %d on data channel %d: %w", e.lent.Ref, s.ch.number, err)
		}
	}
	s.land(landing{event: bufpool.Event{Kind: bound[e.kind], Local: e.lent}})
	return true, nil
}

// bound is what the pools hear when windows are.
var bound = [...]bufpool.Kind{errandBind: bufpool.Bound, errandUnbind: bufpool.Unbound}

// landing is what follows when work requests have completed: a letter to the
// channel's receiver about a batch, or else an event for the pools.
type landing struct {
	event  bufpool.Event
	letter letter
}

// land has something follow when what was posted last, which asks for a
// completion, has completed.
func (s *sender) land(l landing) {
	s.landing = append(s.landing, l)
	s.flights.newest().lands = true
}

// follow does what follows next.
func (s *sender) follow() error {
	l := s.landing[0]
	rest := copy(s.landing, s.landing[1:])
	s.landing[rest] = landing{}
	s.landing = s.landing[:rest]
	if l.letter.batch == nil {
		return s.c.pools.step(l.event)
	}
	s.ch.rx.mail.put(l.letter)
	return nil
}

// number numbers a work request that is no transfer and returns its identifier
// and flags.
func (s *sender) number(signaled bool) (id uint64, flags fabric.Flags) {
	s.posted++
	if signaled {
		flags = fabric.Signaled
		s.signaled, s.silent = s.posted, 0
		s.flights.push(flight{seq: s.posted, slot: noSlot}) // something to wait for
	}
	return uint64(protocol.PackWRID(protocol.WRDataWrite, uint8(s.ch.number), 0, s.posted)), flags
}

// bindWindow binds window i of a pool, under its next key.
func (s *sender) bindWindow(l *bufpool.Local, i int, signaled bool) (err error) {
	id, flags := s.number(signaled)
	s.count.bound.Add(1)
	r, addr, n := l.Span(i)
	l.Keys[i], err = s.ch.qp.Bind(l.Windows[i], r, addr, n, id, flags)
	return err
}

// unbindWindow invalidates window i of a pool.
func (s *sender) unbindWindow(l *bufpool.Local, i int, signaled bool) error {
	id, flags := s.number(signaled)
	s.count.invalidated.Add(1)
	return s.ch.qp.Unbind(l.Windows[i], id, flags)
}

// invalidate sends the peer the last message about a pool of its that is out
// of use, which invalidates its window, if it is one that has to be; and reports
// whether there was room for it.
func (s *sender) invalidate(r *bufpool.Remote) (bool, error) {
	if !r.Invalidate || r.Invalidated {
		return true, nil
	}
	if s.room() <= 0 {
		return false, nil
	}
	r.Invalidated = true // once: there is nothing left to invalidate
	id, flags := s.number(true)
	wr := [1]fabric.SendWR{{ID: id, Op: fabric.OpSendInv, Flags: flags | fabric.Solicited, RKey: r.RKey()}}
	if _, err := s.ch.qp.PostSend(wr[:]); err != nil {
		return false, fmt.Errorf("invalidate the window of pool %d on data channel %d: %w", r.Ref, s.ch.number, err)
	}
	return true, nil
}
