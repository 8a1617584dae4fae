package messaging

import (
	"fmt"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
)

// What a sender posts about windows: they are bound and invalidated on the send queue
// of their data channel.

// windows is how many windows a request is about.
func (r *sqRequest) windows() int {
	if r.batch != nil {
		return len(r.batch.Written)
	}
	return len(r.lent.Windows)
}

// completed is who hears when they are as requested.
func (r *sqRequest) completed() callback {
	switch r.kind {
	case sqBind:
		return callback{event: bufpool.Event{Kind: bufpool.Bound, Local: r.lent}}
	case sqUnbind:
		return callback{event: bufpool.Event{Kind: bufpool.Unbound, Local: r.lent}}
	case sqRevoke:
		return callback{rx: rxEvent{kind: rxRevoked, batch: r.batch}}
	default:
		return callback{rx: rxEvent{kind: rxRebound, batch: r.batch}}
	}
}

// postWindows posts the next n work requests of a request, the last of which asks for
// a completion.
func (q *sendQueue) postWindows(r *sqRequest, n int) (err error) {
	first, end := r.next, r.next+n
	r.next = end
	if r.kind == sqRevoke {
		err = q.invalidateElements(r.batch, r.batch.Written[first:end])
	}
	for i := first; i < end && err == nil; i++ {
		signaled := i == end-1
		switch r.kind {
		case sqBind:
			err = q.bindWindow(r.lent, i, signaled)
		case sqUnbind:
			id, flags := q.number(signaled)
			q.count.WindowsInvalidated.Add(1)
			err = q.ch.qp.Unbind(r.lent.Windows[i], id, flags)
		case sqRebind:
			err = q.bindAgain(&r.batch.Written[i], signaled)
		default:
		}
	}
	if err != nil {
		return fmt.Errorf("windows %d to %d of %d on data channel %d: %w", first, end-1, r.windows(), q.ch.number, err)
	}
	return nil
}

// bindWindow binds window i of a pool, under its next key.
func (q *sendQueue) bindWindow(l *bufpool.Local, i int, signaled bool) (err error) {
	id, flags := q.number(signaled)
	q.count.WindowsBound.Add(1)
	r, addr, n := l.Span(i)
	l.Keys[i], err = q.ch.qp.Bind(l.Windows[i], r, addr, n, id, flags)
	return err
}

// bindWindowAndSend binds the window of a pool, and sends the peer its key behind it
// in the same post. If the bind fails the message is flushed.
func (q *sendQueue) bindWindowAndSend(l *bufpool.Local) error {
	bind, _ := q.number(false)
	send, flags := q.number(true)
	q.count.WindowsBound.Add(1)
	r, addr, n := l.Span(0)
	key, err := q.ch.qp.BindSend(l.Windows[0], r, addr, n, bind, send, flags|fabric.Solicited)
	if err != nil {
		return fmt.Errorf("bind the window of pool %d on data channel %d, and send its key: %w", l.Ref, q.ch.number, err)
	}
	l.Keys[0] = key
	return nil
}

// bindAgain binds the window of an element under the next key, as the peer expects.
func (q *sendQueue) bindAgain(w *bufpool.Written, signaled bool) error {
	l, elem := w.Local, w.Element
	want := protocol.NextKey(l.Keys[elem])
	if err := q.bindWindow(l, elem, signaled); err != nil {
		return err
	}
	if got := l.Keys[elem]; got != want {
		return fmt.Errorf("the device has bound a window with key %#x, not %#x, which the peer will use: %w",
			got, want, fabric.ErrUnsupported)
	}
	return nil
}

// invalidateElements posts the invalidations of the windows of elements in one go.
func (q *sendQueue) invalidateElements(b *bufpool.Batch, some []bufpool.Written) error {
	b.Requests = b.Requests[:0]
	for i := range some {
		id, flags := q.number(i == len(some)-1)
		key := some[i].Local.Keys[some[i].Element]
		b.Requests = append(b.Requests, fabric.SendWR{ID: id, Op: fabric.OpLocalInv, Flags: flags, RKey: key})
	}
	q.count.WindowsInvalidated.Add(uint64(len(some)))
	_, err := q.ch.qp.PostSend(b.Requests)
	return err
}

// invalidateRemote sends the peer the last message about a pool of its that is out
// of use, which invalidates its window.
func (q *sendQueue) invalidateRemote(r *bufpool.Remote) error {
	id, flags := q.number(true)
	wr := [1]fabric.SendWR{{ID: id, Op: fabric.OpSendInv, Flags: flags | fabric.Solicited, RKey: r.RKey()}}
	if _, err := q.ch.qp.PostSend(wr[:]); err != nil {
		return fmt.Errorf("invalidate the window of pool %d on data channel %d: %w", r.Ref, q.ch.number, err)
	}
	return nil
}
