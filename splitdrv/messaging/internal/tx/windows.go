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

// A sender carries out the actions that concern the send queue of its data channel, because only the
// sender posts there. It binds and invalidates windows, and determines when all earlier transfers have
// completed.

// actions has the actions that are not carried out yet. Only the sender's goroutine uses
// it.
type actions struct {
	*sendQueue
	indications *indications
	pools       *pools.Manager
	receiver    *core.Queue[core.RxEvent] // queue of the channel's receiver

	posting  []posting         // actions on windows, in order; they wait for room in the send queue
	stopping []bufpool.Action  // Stop of pools, which wait for completions
	pausing  []chan<- struct{} // pauses, which wait for all completions
}

// posting is an action on windows.
type posting struct {
	bufpool.Action
	next int // first window that is not posted yet
}

// busy reports whether an action is not carried out yet.
func (r *actions) busy() bool {
	return len(r.stopping)+len(r.pausing)+len(r.posting)+len(r.awaited) > 0
}

// add adds actions and pauses, for carryOut.
func (r *actions) add(taken []bufpool.Action, pauses []chan<- struct{}) {
	for i := range taken {
		if taken[i].Do == bufpool.Stop {
			r.stopping = append(r.stopping, taken[i])
		} else {
			r.posting = append(r.posting, posting{Action: taken[i]})
		}
	}
	r.pausing = append(r.pausing, pauses...)
}

// carryOut carries out actions, as far as completions and the room in the send queue allow.
func (r *actions) carryOut() error {
	if err := r.post(); err != nil {
		return err
	}
	if err := r.stop(); err != nil {
		return err
	}
	return r.pause()
}

func (r *actions) room() int { return r.sendQueue.room(len(r.indications.pending)) }

// post posts the work requests for windows, as far as there is room.
func (r *actions) post() error {
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

// postOne posts an action, and reports whether there was room for all of it.
func (r *actions) postOne(q *posting) (bool, error) {
	switch q.Do {
	case bufpool.Invalidate:
		return r.invalidate(q.Remote)
	case bufpool.BindSend:
		return r.bindSend(q.Local)
	default:
	}
	for q.next < q.windows() {
		room := r.room()
		if room <= 0 {
			return false, nil
		}
		if err := r.postWindows(q, min(room, q.windows()-q.next)); err != nil {
			return false, err
		}
	}
	r.whenCompleted(q.Action)
	return true, nil
}

// invalidate sends the message that invalidates the window of a remote pool, if the pool
// needs one. It reports whether there was room for it.
func (r *actions) invalidate(p *bufpool.Remote) (bool, error) {
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
func (r *actions) bindSend(l *bufpool.Local) (bool, error) {
	switch room := r.room(); {
	case room >= 2:
		return true, r.bindWindowAndSend(l)
	case room == 1 && r.signaled != r.posted:
		return false, r.drain() // its completion shows that there is room for two
	default:
		return false, nil
	}
}

// stop finishes the Stop of each pool whose transfers have all completed.
func (r *actions) stop() error {
	for i := 0; i < len(r.stopping); {
		q := &r.stopping[i]
		idle, last := q.Remote.Idle()
		if !idle {
			if err := r.complete(last); err != nil {
				return err
			}
			i++
			continue
		}
		if q.Last {
			if done, err := r.invalidate(q.Remote); !done || err != nil {
				return err
			}
		}
		done := q.Done()
		r.stopping = slices.Delete(r.stopping, i, i+1)
		if err := r.pools.Notify(done); err != nil {
			return err
		}
	}
	return nil
}

// pause reports the pauses if everything has completed, also the actions on windows: at the end of a
// session these include the messages that invalidate the windows of remote pools.
func (r *actions) pause() error {
	if len(r.pausing) == 0 {
		return nil
	}
	if r.ring.len() > 0 || len(r.indications.pending) > 0 || len(r.posting) > 0 {
		return r.complete(r.posted)
	}
	for _, done := range r.pausing {
		done <- struct{}{}
	}
	r.pausing = r.pausing[:0]
	return nil
}

// complete makes sure that the completion of a work request will be noticed.
func (r *actions) complete(seq uint32) error {
	if int32(seq-r.signaled) > 0 {
		return r.drain()
	}
	return nil
}

// finished continues when the next action on windows has completed: one on a batch goes back to the
// channel's receiver.
func (r *actions) finished() error {
	act := r.nextCompleted()
	if act.Batch == nil {
		return r.pools.Notify(act.Done())
	}
	r.receiver.Put(core.RxEvent{Do: act.Do, Batch: act.Batch})
	return nil
}

func (q *posting) windows() int {
	if q.Batch != nil {
		return len(q.Batch.Written)
	}
	return len(q.Local.Windows)
}

// postWindows posts the next n work requests of an action. The last one is signaled.
func (q *sendQueue) postWindows(r *posting, n int) (err error) {
	first, end := r.next, r.next+n
	r.next = end
	if r.Do == bufpool.Revoke {
		err = q.invalidateElements(r.Batch, r.Batch.Written[first:end])
	}
	for i := first; i < end && err == nil; i++ {
		signaled := i == end-1
		switch r.Do {
		case bufpool.Bind:
			err = q.bindWindow(r.Local, i, signaled)
		case bufpool.Unbind:
			id, flags := q.number(signaled)
			q.count.WindowsInvalidated.Add(1)
			err = q.ch.QP.Unbind(r.Local.Windows[i], id, flags)
		case bufpool.Rebind:
			err = q.bindAgain(&r.Batch.Written[i], signaled)
		default:
		}
	}
	if err != nil {
		return fmt.Errorf("windows %d to %d of %d on data channel %d: %w", first, end-1, r.windows(), q.ch.Number,
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
