package messaging

import (
	"fmt"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
)

// sort puts what others want of the send queue where it belongs: some has to wait
// until transfers have completed, the rest for room in the send queue at most.
func (s *sender) sort(requests []sqRequest) {
	for _, q := range requests {
		if q.kind == sqDrain {
			s.draining = append(s.draining, q)
		} else {
			s.requests = append(s.requests, q)
		}
	}
}

// perform posts what is to be posted about windows, as far as there is room.
func (s *sender) perform() error {
	n := 0
	for n < len(s.requests) {
		done, err := s.performOne(&s.requests[n])
		if err != nil {
			return err
		}
		if !done {
			break
		}
		n++
	}
	rest := copy(s.requests, s.requests[n:])
	clear(s.requests[rest:])
	s.requests = s.requests[:rest]
	return nil
}

// performOne posts a request, and reports whether there was room for all of it.
func (s *sender) performOne(q *sqRequest) (bool, error) {
	switch q.kind {
	case sqInvalidate:
		return s.invalidate(q.pool)
	case sqRevoke, sqRebind:
		return s.revokeOrRebind(q)
	default:
	}
	for ; q.next < len(q.lent.Windows); q.next++ {
		room := s.room()
		if room <= 0 {
			return false, nil
		}
		last := q.next == len(q.lent.Windows)-1
		post := s.bindWindow
		if q.kind == sqUnbind {
			post = s.unbindWindow
		}
		if err := post(q.lent, q.next, last || room == 1); err != nil {
			return false, fmt.Errorf("pool %d on data channel %d: %w", q.lent.Ref, s.ch.number, err)
		}
	}
	s.whenCompleted(callback{event: bufpool.Event{Kind: bound[q.kind], Local: q.lent}})
	return true, nil
}

// bound is what the pools hear when windows are.
var bound = [...]bufpool.Kind{sqBind: bufpool.Bound, sqUnbind: bufpool.Unbound}

// callback is who hears that work requests have completed: the channel's receiver,
// about a batch, or else the pools.
type callback struct {
	rx    rxEvent
	event bufpool.Event
}

// whenCompleted has somebody hear when what was posted last, which asks for a
// completion, has completed.
func (s *sender) whenCompleted(c callback) {
	s.callbacks = append(s.callbacks, c)
	s.flights.newest().callback = true
}

// callBack is the next callback.
func (s *sender) callBack() error {
	c := s.callbacks[0]
	rest := copy(s.callbacks, s.callbacks[1:])
	s.callbacks[rest] = callback{}
	s.callbacks = s.callbacks[:rest]
	if c.rx.batch == nil {
		return s.c.pools.step(c.event)
	}
	s.ch.rx.queue.put(c.rx)
	return nil
}

// number numbers a work request that is no transfer and returns its identifier
// and flags.
func (s *sender) number(signaled bool) (id uint64, flags fabric.Flags) {
	s.posted++
	if signaled {
		flags = fabric.Signaled
		s.signaled, s.unsignaled = s.posted, 0
		s.flights.push(flight{seq: s.posted, slot: noSlot}) // something to wait for
	}
	return uint64(protocol.PackWRID(protocol.WRDataWrite, uint8(s.ch.number), 0, s.posted)), flags
}

// bindWindow binds window i of a pool, under its next key.
func (s *sender) bindWindow(l *bufpool.Local, i int, signaled bool) (err error) {
	id, flags := s.number(signaled)
	s.count.WindowsBound.Add(1)
	r, addr, n := l.Span(i)
	l.Keys[i], err = s.ch.qp.Bind(l.Windows[i], r, addr, n, id, flags)
	return err
}

// unbindWindow invalidates window i of a pool.
func (s *sender) unbindWindow(l *bufpool.Local, i int, signaled bool) error {
	id, flags := s.number(signaled)
	s.count.WindowsInvalidated.Add(1)
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
