package fabrictest

import "github.com/splitnic/splitnic/fabric"

// outcome is the result of executing a request.
type outcome uint8

const (
	done     outcome = iota // executed; the status is the other result
	notReady                // not executed: no receive is posted
	noAnswer                // not executed: the peer does not answer
)

// execute tries to execute a request. q.sq is held.
func (q *qp) execute(w *work) (fabric.Status, outcome) {
	if h := q.node.hook.Load(); h != nil {
		if s := (*h)(q.num, w.SendWR); s != fabric.StatusSuccess {
			return s, done
		}
	}
	var s fabric.Status
	var o outcome
	switch w.Op {
	case fabric.OpBind:
		q.net.keys.Lock()
		if !w.bind.window.attach(q, w.bind) {
			s = fabric.StatusMWBindErr
		} else {
			q.sent.sent(w)
		}
		q.net.keys.Unlock()
	case fabric.OpLocalInv:
		q.net.keys.Lock()
		if win := q.boundWindow(w.RKey); win != nil {
			win.detach()
			q.sent.sent(w)
		} else {
			s = fabric.StatusLocQPOpErr
		}
		q.net.keys.Unlock()
	case fabric.OpSendInv: // changes the key table
		q.net.keys.Lock()
		s, o = q.transmit(w)
		q.net.keys.Unlock()
	default:
		q.net.keys.RLock()
		s, o = q.transmit(w)
		q.net.keys.RUnlock()
	}
	return s, o
}

// boundWindow returns the window with that key, or nil if no such window is bound to q.
// Network.keys is held.
func (q *qp) boundWindow(key uint32) *window {
	e := q.dom.dev.table.find(key)
	if e == nil || e.window == nil {
		return nil
	}
	if w := e.window; w.at != nil && w.at.key == key && w.qp == q {
		return w
	}
	return nil
}

// transmit sends a message to the peer. q.sq and Network.keys are held.
func (q *qp) transmit(w *work) (fabric.Status, outcome) {
	if int64(w.size) > int64(q.net.limits.MaxMsg) {
		return fabric.StatusLocLenErr, done
	}
	if w.Op == fabric.OpRead {
		if w.size != 0 && q.writable(w) == nil {
			return fabric.StatusLocProtErr, done
		}
	} else if !q.readable(w) {
		return fabric.StatusLocProtErr, done
	}
	s, o := fabric.StatusSuccess, noAnswer
	if q.cfg.Transport == fabric.UC && q.node.takeDrop() {
		q.sent.Drops++
		return fabric.StatusSuccess, done
	}
	if p := q.other(); p != nil && !q.cutOff(p) && !q.tooLong(w) {
		p.resp.Lock()
		if p.answers(q) {
			s, o = p.respond(q, w)
		}
		p.resp.Unlock()
	}
	switch {
	case o == done && s == fabric.StatusSuccess:
		q.sent.sent(w)
	case q.cfg.Transport == fabric.UC:
		q.sent.Drops++
		return fabric.StatusSuccess, done
	}
	return s, o
}

// respond executes a message at the receiver q, and returns the status for the sender. On an
// unreliable connection, a message that cannot be delivered has no effect at q. q.resp, from.sq
// and Network.keys are held.
func (q *qp) respond(from *qp, w *work) (fabric.Status, outcome) {
	reliable := q.cfg.Transport == fabric.RC
	if w.size != 0 && q.node.refuseNext.Load() && q.node.refuseNext.CompareAndSwap(true, false) {
		q.recvd.AccessErrors++
		return q.refuse(fabric.StatusRemAccessErr, fabric.StatusSuccess, reliable)
	}
	if w.Op == fabric.OpRead {
		return q.respondRead(from, w)
	}
	if w.Op != fabric.OpWrite && q.head == q.tail.Load() && !q.await(from, reliable) {
		return fabric.StatusSuccess, notReady
	}
	if w.Op == fabric.OpWrite || w.Op == fabric.OpWriteImm {
		if w.size != 0 {
			dst := q.dom.dev.table.remote(q, w.Op, w.RKey, w.RemoteAddr, w.size)
			if dst == nil {
				q.recvd.AccessErrors++
				return q.refuse(fabric.StatusRemAccessErr, fabric.StatusSuccess, reliable)
			}
			if w.Op == fabric.OpWrite && q.net.adapter.LateWrites {
				q.late = append(q.late, lateWrite{w.Op, w.RKey, w.RemoteAddr, make([]byte, w.size)})
				dst = q.late[len(q.late)-1].data
			}
			from.gather(dst, w)
		} else if w.Op == fabric.OpWrite && q.net.adapter.NoEmptyWrites {
			return q.refuse(fabric.StatusRemInvReqErr, fabric.StatusSuccess, reliable)
		}
		if w.Op == fabric.OpWrite {
			return fabric.StatusSuccess, done
		}
		q.show()
		q.recvd.RecvWriteImms++
		wc := fabric.Completion{ID: q.receive(q.head).ID, Op: fabric.OpRecvWriteImm, Flags: fabric.WithImm, Imm: w.Imm,
			Len: w.size}
		q.head++
		q.pushRecv(&wc, w.Flags&fabric.Solicited != 0)
		return fabric.StatusSuccess, done
	}
	return q.respondSend(from, w, reliable)
}

// show makes the data of late writes visible. q.resp and Network.keys are held.
func (q *qp) show() {
	for i := range q.late {
		l := &q.late[i]
		copy(q.dom.dev.table.remote(q, l.op, l.rkey, l.addr, uint32(len(l.data))), l.data)
	}
	q.late = nil
}

// respondRead executes a read. The connection is reliable.
func (q *qp) respondRead(from *qp, w *work) (fabric.Status, outcome) {
	q.show()
	if q.cfg.MaxDestRdAtomic == 0 {
		return q.refuse(fabric.StatusRemInvReqErr, fabric.StatusSuccess, true)
	}
	if w.size != 0 {
		src := q.dom.dev.table.remote(q, w.Op, w.RKey, w.RemoteAddr, w.size)
		if src == nil {
			q.recvd.AccessErrors++
			return q.refuse(fabric.StatusRemAccessErr, fabric.StatusSuccess, true)
		}
		copy(from.writable(w), src)
	}
	return fabric.StatusSuccess, done
}

// respondSend delivers a SEND to the next receive. There is a posted receive.
func (q *qp) respondSend(from *qp, w *work, reliable bool) (fabric.Status, outcome) {
	q.show()
	r := q.receive(q.head)
	if w.size > r.Len {
		return q.refuse(fabric.StatusRemInvReqErr, fabric.StatusLocLenErr, reliable)
	}
	wc := fabric.Completion{ID: r.ID, Op: fabric.OpRecv, Len: w.size}
	var dst []byte
	if w.size != 0 {
		if dst = q.dom.dev.table.local(q.dom, r.LKey, r.Addr, w.size, true); dst == nil {
			return q.refuse(fabric.StatusRemOpErr, fabric.StatusLocProtErr, reliable)
		}
	}
	switch w.Op {
	case fabric.OpSendImm:
		wc.Flags, wc.Imm = fabric.WithImm, w.Imm
	case fabric.OpSendInv:
		win := q.boundWindow(w.RKey)
		if win == nil {
			q.recvd.AccessErrors++
			return q.refuse(fabric.StatusRemAccessErr, fabric.StatusSuccess, reliable)
		}
		win.detach()
		wc.Flags, wc.InvKey = fabric.WithInv, w.RKey
	}
	from.gather(dst, w)
	q.recvd.Recvs++
	q.head++
	q.pushRecv(&wc, w.Flags&fabric.Solicited != 0)
	return fabric.StatusSuccess, done
}

// refuse fails a message. The sender's request completes with status. The next receive completes
// with own, unless that is StatusSuccess. q enters the error state. An unreliable connection only
// drops the message.
func (q *qp) refuse(status, own fabric.Status, reliable bool) (fabric.Status, outcome) {
	if !reliable {
		return status, done
	}
	if own != fabric.StatusSuccess {
		q.pushRecv(&fabric.Completion{ID: q.receive(q.head).ID, Status: own}, false)
		q.head++
	}
	if status == fabric.StatusRemAccessErr {
		q.raise(fabric.EventQPAccessErr)
	} else {
		q.raise(fabric.EventQPReqErr)
	}
	q.enterError()
	return status, done
}

// await has the next posted receive wake from. It reports whether a receive has been posted
// meanwhile.
func (q *qp) await(from *qp, reliable bool) bool {
	q.rq.Lock()
	defer q.rq.Unlock()
	if q.head != q.tail.Load() {
		return true
	}
	if reliable {
		q.rnrWaiter = from
	}
	return false
}

// takeDrop reports whether the next message of an unreliable connection has to be dropped.
func (nd *node) takeDrop() bool {
	for {
		c := nd.dropUC.Load()
		if c <= 0 {
			return false
		}
		if nd.dropUC.CompareAndSwap(c, c-1) {
			return true
		}
	}
}

// sent counts a message, or a work request of another kind, that was carried out.
func (c *Counters) sent(w *work) {
	switch w.Op {
	case fabric.OpSend, fabric.OpSendImm:
		c.Sends++
	case fabric.OpSendInv:
		c.SendInvs++
	case fabric.OpWrite:
		c.Writes++
	case fabric.OpWriteImm:
		c.WriteImms++
	case fabric.OpRead:
		c.Reads++
	case fabric.OpBind:
		c.Binds++
	case fabric.OpLocalInv:
		c.LocalInvs++
	}
	c.Bytes += uint64(w.size)
	if w.Flags&fabric.More != 0 {
		c.Gathers++
	}
	if w.Flags&fabric.Inline != 0 {
		c.Inlines++
	}
}
