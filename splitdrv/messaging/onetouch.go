package messaging

import (
	"fmt"
	"slices"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
)

// With protection one-touch each element is behind a window of its own, and
// travels in a bufpool.Batch between the channel's receiver and its sender, which
// alone posts to the send queue.

// gather puts an element that was consumed in a batch.
func (r *receiver) gather(l *bufpool.Local, elem int, data []byte) {
	if len(r.touched.Gathered()) == bufpool.MaxBatch {
		r.revoke()
	}
	r.touched.Gather(bufpool.Written{Local: l, Element: elem, Data: data})
}

// gatheredIndicated notes how the element was indicated that was gathered last.
func (r *receiver) gatheredIndicated(last bool) {
	gathered := r.touched.Gathered()
	w := &gathered[len(gathered)-1]
	w.Indicated, w.Last = true, last
}

// revoke has the sender invalidate the windows of what was gathered.
func (r *receiver) revoke() {
	if b := r.touched.Seal(); b != nil {
		r.ch.tx.queue.put(sqRequest{kind: sqRevoke, batch: b})
	}
}

// revoked delivers what lies in elements that nobody can write any more, and has
// their windows bound again.
func (r *receiver) revoked(b *bufpool.Batch) error {
	r.touched.Revoked()
	for i := range b.Written {
		if err := r.out.unpack(b.Written[i].Data); err != nil {
			return err
		}
	}
	if err := r.flush(); err != nil {
		return err
	}
	r.ch.tx.queue.put(sqRequest{kind: sqRebind, batch: b})
	return nil
}

// rebound has elements returned that can be written again.
func (r *receiver) rebound(b *bufpool.Batch) error {
	b.Rebound(&r.returns)
	for i := range b.Written {
		// A pool that the peer has stopped using goes with its last element.
		l := b.Written[i].Local
		if r.retired(l) && l.Elements.Ledger().Consumed == 0 && slices.Contains(*r.local.Load(), l) {
			if err := r.retire(l); err != nil {
				return err
			}
		}
	}
	r.touched.Put(b)
	return nil
}

// abandon counts the frames of a session that has ended which lie in elements
// that the peer can still write, and so are not delivered.
func (r *receiver) abandon() {
	for _, b := range r.touched.Abandoned() {
		for i := range b.Written {
			// As many as the peer says; nothing follows from it but the count.
			r.count.RxUnrevoked.Add(uint64(r.out.framesIn(b.Written[i].Data)))
		}
	}
}

// revokeOrRebind posts what a request about a batch is about, as far as there is
// room, and reports whether that was all.
func (s *sender) revokeOrRebind(q *sqRequest) (bool, error) {
	b := q.batch
	for q.next < len(b.Written) {
		room := s.room()
		if room <= 0 {
			return false, nil
		}
		n := min(room, len(b.Written)-q.next)
		some := b.Written[q.next : q.next+n]
		q.next += n
		var err error
		if q.kind == sqRevoke {
			err = s.invalidateElements(b, some)
		} else {
			err = s.bindElements(some)
		}
		if err != nil {
			return false, fmt.Errorf("windows of %d elements on data channel %d: %w", n, s.ch.number, err)
		}
	}
	done := rxEvent{kind: rxRevoked, batch: b}
	if q.kind == sqRebind {
		done.kind = rxRebound
	}
	s.whenCompleted(callback{rx: done})
	return true, nil
}

// invalidateElements posts the invalidations in one go, the last of which asks
// for a completion.
func (s *sender) invalidateElements(b *bufpool.Batch, some []bufpool.Written) error {
	b.Requests = b.Requests[:0]
	for i := range some {
		id, flags := s.number(i == len(some)-1)
		key := some[i].Local.Keys[some[i].Element]
		b.Requests = append(b.Requests, fabric.SendWR{ID: id, Op: fabric.OpLocalInv, Flags: flags, RKey: key})
	}
	s.count.WindowsInvalidated.Add(uint64(len(some)))
	_, err := s.ch.qp.PostSend(b.Requests)
	return err
}

// bindElements binds the windows of elements again, under the next keys.
func (s *sender) bindElements(some []bufpool.Written) error {
	for i := range some {
		l, elem := some[i].Local, some[i].Element
		want := protocol.NextKey(l.Keys[elem])
		if err := s.bindWindow(l, elem, i == len(some)-1); err != nil {
			return err
		}
		if got := l.Keys[elem]; got != want {
			return fmt.Errorf("the device has bound a window with key %#x, not %#x, which the peer will use: %w",
				got, want, fabric.ErrUnsupported)
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
