package tx

import (
	"fmt"
	"slices"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/core"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/pools"
)

// A sender carries out the requests of other goroutines that concern the send queue of its
// data channel, because only the sender posts there. It binds and invalidates windows, and
// determines when all earlier transfers have completed.

// sqRequests has the requests that are not carried out yet. Only the sender's goroutine uses
// it.
type sqRequests struct {
	*sendQueue
	indications *indications
	pools       *pools.Manager
	Receiver    *core.Queue[core.RxEvent] // queue of the channel's receiver

	posting  []core.SqRequest // requests about windows, in order; they wait for room in the send queue
	draining []core.SqRequest // SqDrain requests; they wait for completions
}

// busy reports whether a request is not completed yet.
func (r *sqRequests) busy() bool { return len(r.draining)+len(r.posting)+len(r.callbacks) > 0 }

// add adds a request, for carryOut.
func (r *sqRequests) add(q core.SqRequest) {
	if q.Kind == core.SqDrain {
		r.draining = append(r.draining, q)
	} else {
		r.posting = append(r.posting, q)
	}
}

// carryOut carries out requests, as far as completions and the room in the send queue allow.
func (r *sqRequests) carryOut() error {
	if err := r.post(); err != nil {
		return err
	}
	return r.finishDrains()
}

// room returns the room in the send queue.
func (r *sqRequests) room() int { return r.sendQueue.room(len(r.indications.pending)) }

// post posts the work requests for windows, as far as there is room.
func (r *sqRequests) post() error {
	for n := range r.posting {
		if done, err := r.postOne(&r.posting[n]); err != nil || !done {
			r.posting = slices.Delete(r.posting, 0, n)
			return err
		}
	}
	clear(r.posting)
	r.posting = r.posting[:0]
	return nil
}

// postOne posts a request, and reports whether there was room for all of it.
func (r *sqRequests) postOne(q *core.SqRequest) (bool, error) {
	switch q.Kind {
	case core.SqInvalidate:
		return r.invalidate(q.Pool)
	case core.SqBindSend:
		return r.bindSend(q.Lent)
	default:
	}
	for q.Next < windowsOf(q) {
		room := r.room()
		if room <= 0 {
			return false, nil
		}
		if err := r.postWindows(q, min(room, windowsOf(q)-q.Next)); err != nil {
			return false, err
		}
	}
	r.whenCompleted(callbackOf(q))
	return true, nil
}

// invalidate sends the message that invalidates the window of a remote pool, if the pool
// needs one. It reports whether there was room for it.
func (r *sqRequests) invalidate(p *bufpool.Remote) (bool, error) {
	if !p.ToInvalidate() {
		return true, nil
	}
	if r.room() <= 0 {
		return false, nil
	}
	p.Invalidating()
	return true, r.invalidateRemote(p)
}

// bindSend binds the window of a pool and sends its key, in one post. It reports whether
// there was room for both.
func (r *sqRequests) bindSend(l *bufpool.Local) (bool, error) {
	switch room := r.room(); {
	case room >= 2:
		return true, r.bindWindowAndSend(l)
	case room == 1 && r.Signaled != r.Posted:
		return false, r.drain() // its completion shows that there is room for two
	default:
		return false, nil
	}
}

// finishDrains finishes the SqDrain requests whose transfers have all completed. A pause,
// which drains all transfers, also waits for the requests about windows before it: at the
// end of a session these include the messages that invalidate the windows of remote pools.
func (r *sqRequests) finishDrains() error {
	for i := 0; i < len(r.draining); {
		q := r.draining[i]
		last, busy := r.Posted, r.ring.len() > 0 || len(r.indications.pending) > 0 || len(r.posting) > 0
		if q.Pool != nil {
			var idle bool
			idle, last = q.Pool.Idle()
			busy = !idle
		}
		if busy {
			if int32(last-r.Signaled) > 0 {
				if err := r.drain(); err != nil {
					return err
				}
			}
			i++
			continue
		}
		if q.Last {
			if done, err := r.invalidate(q.Pool); !done || err != nil {
				return err
			}
		}
		r.draining = append(r.draining[:i], r.draining[i+1:]...)
		switch {
		case q.Pool != nil:
			if err := r.pools.Notify(bufpool.Event{Did: bufpool.Stop, Remote: q.Pool, Last: q.Last}); err != nil {
				return err
			}
		case q.Done != nil:
			q.Done <- struct{}{}
		}
	}
	return nil
}

// completed carries out the next callback.
func (r *sqRequests) completed() error {
	c := r.called()
	if c.rx.Batch == nil {
		return r.pools.Notify(c.event)
	}
	r.Receiver.Put(c.rx)
	return nil
}

// windowsOf returns the number of windows of a request.
func windowsOf(r *core.SqRequest) int {
	if r.Batch != nil {
		return len(r.Batch.Written)
	}
	return len(r.Lent.Windows)
}

// callbackOf returns the callback for the completion of a request.
func callbackOf(r *core.SqRequest) callback {
	switch r.Kind {
	case core.SqBind:
		return callback{event: bufpool.Event{Did: bufpool.Bind, Local: r.Lent}}
	case core.SqUnbind:
		return callback{event: bufpool.Event{Did: bufpool.Unbind, Local: r.Lent}}
	case core.SqRevoke:
		return callback{rx: core.RxEvent{Kind: core.RxRevoked, Batch: r.Batch}}
	default:
		return callback{rx: core.RxEvent{Kind: core.RxRebound, Batch: r.Batch}}
	}
}

// postWindows posts the next n work requests of a request. The last one is signaled.
func (q *sendQueue) postWindows(r *core.SqRequest, n int) (err error) {
	first, end := r.Next, r.Next+n
	r.Next = end
	if r.Kind == core.SqRevoke {
		err = q.invalidateElements(r.Batch, r.Batch.Written[first:end])
	}
	for i := first; i < end && err == nil; i++ {
		signaled := i == end-1
		switch r.Kind {
		case core.SqBind:
			err = q.bindWindow(r.Lent, i, signaled)
		case core.SqUnbind:
			id, flags := q.number(signaled)
			q.count.WindowsInvalidated.Add(1)
			err = q.ch.QP.Unbind(r.Lent.Windows[i], id, flags)
		case core.SqRebind:
			err = q.bindAgain(&r.Batch.Written[i], signaled)
		default:
		}
	}
	if err != nil {
		return fmt.Errorf("windows %d to %d of %d on data channel %d: %w", first, end-1, windowsOf(r), q.ch.Number,
			fabric.Refused(q.ch.QP, err))
	}
	return nil
}

// bindWindow binds window i of a pool. The window gets a new key.
func (q *sendQueue) bindWindow(l *bufpool.Local, i int, signaled bool) (err error) {
	id, flags := q.number(signaled)
	q.count.WindowsBound.Add(1)
	l.Keys[i], err = q.ch.QP.Bind(bindWR(l, i, id, flags))
	return err
}

// bindWR returns the work request that binds window i of a pool. The peer may only write.
func bindWR(l *bufpool.Local, i int, id uint64, flags fabric.Flags) fabric.BindWR {
	r, addr, n := l.Span(i)
	return fabric.BindWR{
		ID: id, Window: l.Windows[i], Region: r, Addr: addr, Length: n, Access: fabric.RemoteWrite, Flags: flags,
	}
}

// bindWindowAndSend binds the window of a pool, and sends its key to the peer in the same
// post. If the bind fails, the message is flushed.
func (q *sendQueue) bindWindowAndSend(l *bufpool.Local) error {
	bind, _ := q.number(false)
	send, flags := q.number(true)
	q.count.WindowsBound.Add(1)
	key, err := q.ch.QP.BindSend(bindWR(l, 0, bind, 0), send, flags|fabric.Solicited)
	if err != nil {
		return fmt.Errorf("bind the window of pool %d on data channel %d, and send its key: %w", l.Ref, q.ch.Number,
			fabric.Refused(q.ch.QP, err))
	}
	l.Keys[0] = key
	return nil
}

// bindAgain binds the window of an element again, which must get the key that the peer
// expects.
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

// invalidateElements posts the invalidations of the windows of several elements in one call.
func (q *sendQueue) invalidateElements(b *bufpool.Batch, some []bufpool.Written) error {
	b.Requests = b.Requests[:0]
	for i := range some {
		id, flags := q.number(i == len(some)-1)
		key := some[i].Local.Keys[some[i].Element]
		b.Requests = append(b.Requests, fabric.SendWR{ID: id, Op: fabric.OpLocalInv, Flags: flags, RKey: key})
	}
	q.count.WindowsInvalidated.Add(uint64(len(some)))
	_, err := q.ch.QP.PostSend(b.Requests)
	return err
}

// invalidateRemote sends the last message about a remote pool that is no longer used. It
// invalidates the pool's window.
func (q *sendQueue) invalidateRemote(r *bufpool.Remote) error {
	id, flags := q.number(true)
	wr := [1]fabric.SendWR{{ID: id, Op: fabric.OpSendInv, Flags: flags | fabric.Solicited, RKey: r.RKey()}}
	if _, err := q.ch.QP.PostSend(wr[:]); err != nil {
		return fmt.Errorf("invalidate the window of pool %d on data channel %d: %w", r.Ref, q.ch.Number,
			fabric.Refused(q.ch.QP, err))
	}
	return nil
}
