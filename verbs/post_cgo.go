package verbs

// #cgo noescape snv_post_send
// #cgo nocallback snv_post_send
// #cgo noescape snv_post_recv
// #cgo nocallback snv_post_recv
// #include "shim.h"
import "C"

import (
	"fmt"
	"net"
	"syscall"
	"unsafe"

	"github.com/splitnic/splitnic/fabric"
)

// postErr returns the error of a rejected post. For a post to the send queue, sends begins
// with the first rejected request.
func (q *QP) postErr(op string, no syscall.Errno, sends []fabric.SendWR) error {
	hint := ""
	var err error = no
	switch no {
	case syscall.ENOMEM, syscall.ENOSPC:
		err = fmt.Errorf("%w: %w", fabric.ErrQueueFull, no)
	case syscall.EINVAL:
		if len(sends) != 0 {
			hint = sendHint(sends, q.cfg)
		}
	}
	return q.opErr(op, err, hint)
}

// notReady returns the error of a post to a queue that is not open for posting.
func (q *QP) notReady(op string) error {
	q.ctl.Lock()
	defer q.ctl.Unlock()
	if q.qp == nil {
		return q.opErr(op, net.ErrClosed, "")
	}
	return q.opErr(op, syscall.EINVAL, "the queue pair is in state "+q.state.String())
}

// PostSend implements fabric.QP. The caller must keep inline data in Go memory alive until
// PostSend returns.
//
// Implements: int ibv_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
func (q *QP) PostSend(wrs []fabric.SendWR) (int, error) {
	if len(wrs) == 0 {
		return 0, nil
	}
	q.sendMu.Lock()
	if q.sq == 0 {
		q.sendMu.Unlock()
		return 0, q.notReady("post send")
	}
	p := C.snv_post_send(q.sq, (*C.struct_snv_send_wr)(unsafe.Pointer(&wrs[0])), C.int(len(wrs)), q.sendLim)
	n := int(p.n)
	if p.err == C.SNV_LOCAL_INV {
		var err error
		n, err = q.postRest(wrs, n)
		q.sendMu.Unlock()
		return n, err
	}
	q.sendMu.Unlock()
	if p.err != 0 {
		return n, q.postErr("post send", errno(p.err), wrs[n:])
	}
	return n, nil
}

// postRest continues a batch at record n, which is a LOCAL_INV. The shim leaves LOCAL_INV to
// Go, which knows the bound windows. sendMu is held.
func (q *QP) postRest(wrs []fabric.SendWR, n int) (int, error) {
	for n < len(wrs) {
		if wr := &wrs[n]; wr.Op == fabric.OpLocalInv && wr.Flags&fabric.More == 0 {
			if err := q.localInv(wr.RKey, wr.ID, wr.Flags); err != nil {
				return n, err
			}
			n++
			continue
		}
		p := C.snv_post_send(q.sq, (*C.struct_snv_send_wr)(unsafe.Pointer(&wrs[n])), C.int(len(wrs)-n), q.sendLim)
		n += int(p.n)
		if p.err != 0 && p.err != C.SNV_LOCAL_INV {
			return n, q.postErr("post send", errno(p.err), wrs[n:])
		}
	}
	return n, nil
}

const noLocalInvHint = "Soft-RoCE invalidates windows on reliable connections only: close the window instead"

// noLocalInv reports whether LOCAL_INV on this queue pair would fail with an error that ends
// the connection.
func (q *QP) noLocalInv() bool {
	return q.cfg.Transport == fabric.UC && q.pd.ctx.driver == rxeDriver
}

// localInv invalidates the window with this key, which must be bound to this queue pair.
// sendMu is held.
func (q *QP) localInv(key uint32, id uint64, f fabric.Flags) error {
	if q.noLocalInv() {
		return q.opErr(fmt.Sprintf("invalidate key %#x", key), fabric.ErrUnsupported, noLocalInvHint)
	}
	w := q.bound.find(key)
	if w == nil {
		return q.opErr(fmt.Sprintf("invalidate key %#x", key), syscall.EINVAL,
			"no window of that key is bound to this queue pair")
	}
	return q.postUnbind(w, key, id, f)
}

// PostRecv implements fabric.QP.
//
// Implements: int ibv_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
func (q *QP) PostRecv(wrs []fabric.RecvWR) (int, error) {
	if len(wrs) == 0 {
		return 0, nil
	}
	q.recvMu.Lock()
	if q.rq == 0 {
		q.recvMu.Unlock()
		return 0, q.notReady("post receive")
	}
	p := C.snv_post_recv(q.rq, (*C.struct_snv_recv_wr)(unsafe.Pointer(&wrs[0])), C.int(len(wrs)))
	q.recvMu.Unlock()
	if p.err != 0 {
		return int(p.n), q.postErr("post receive", errno(p.err), nil)
	}
	return int(p.n), nil
}

// Bind implements fabric.QP.
//
// Implements: int ibv_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr) with IBV_WR_BIND_MW
func (q *QP) Bind(b fabric.BindWR) (uint32, error) { return q.bind(&b, nil, 0) }

// BindSend implements fabric.QP.
//
// Implements: int ibv_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr) with IBV_WR_BIND_MW and IBV_WR_SEND_WITH_IMM in one list
func (q *QP) BindSend(b fabric.BindWR, send uint64, f fabric.Flags) (uint32, error) {
	return q.bind(&b, &send, f)
}

func (q *QP) bind(b *fabric.BindWR, send *uint64, f fabric.Flags) (uint32, error) {
	const op = "bind memory window"
	mw, ok := b.Window.(*MW)
	mr, ok2 := b.Region.(*MR)
	switch {
	case !ok || !ok2 || mw.pd != q.pd || mr.pd != q.pd:
		return 0, q.opErr(op, syscall.EINVAL, "window, region and queue pair must be of one protection domain")
	case !b.Grants():
		return 0, q.opErr(op, syscall.EINVAL, "a window grants remote write, remote read, or both")
	}
	q.sendMu.Lock()
	if q.sq == 0 {
		q.sendMu.Unlock()
		return 0, q.notReady(op)
	}
	key, err := q.postBind(mw, mr, b, send, f)
	q.sendMu.Unlock()
	return key, err
}

// Unbind implements fabric.QP. Soft-RoCE does not support it on an unreliable connection.
// Close the window there instead.
//
// Implements: int ibv_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr) with IBV_WR_LOCAL_INV
func (q *QP) Unbind(w fabric.Window, id uint64, f fabric.Flags) error {
	const op = "invalidate memory window"
	mw, ok := w.(*MW)
	if !ok || mw.pd != q.pd {
		return q.opErr(op, syscall.EINVAL, "window and queue pair must be of one protection domain")
	}
	if q.noLocalInv() {
		return q.opErr(op, fabric.ErrUnsupported, noLocalInvHint)
	}
	q.sendMu.Lock()
	if q.sq == 0 {
		q.sendMu.Unlock()
		return q.notReady(op)
	}
	err := q.postUnbind(mw, mw.RKey(), id, f)
	q.sendMu.Unlock()
	return err
}

// postBind posts the bind. If send is not nil, a SEND of the key with identifier *send and the
// flags f follows. sendMu is held and sq is not 0.
func (q *QP) postBind(w *MW, r *MR, b *fabric.BindWR, send *uint64, f fabric.Flags) (uint32, error) {
	const op = "bind memory window"
	addr, length := b.Addr, b.Length
	w.mu.Lock()
	defer w.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case w.closed || r.mr == nil:
		return 0, q.opErr(op, net.ErrClosed, "")
	case w.in != nil:
		return 0, q.opErr(op, syscall.EBUSY, "the window is bound: unbind it first")
	case length <= 0 || addr < r.addr || addr-r.addr > uint64(r.length) || uint64(length) > uint64(r.length)-(addr-r.addr):
		return 0, q.opErr(op, syscall.EINVAL, "the range does not lie inside the region")
	}
	if w.mw == nil {
		if no := w.alloc(); no != 0 {
			return 0, q.opErr(op, no, "")
		}
	}
	access := 0
	if b.Access&fabric.RemoteWrite != 0 {
		access |= C.IBV_ACCESS_REMOTE_WRITE
	}
	if b.Access&fabric.RemoteRead != 0 {
		access |= C.IBV_ACCESS_REMOTE_READ
	}
	bind := C.struct_snv_bind{
		mw: w.mw, mr: r.mr, addr: C.uint64_t(addr), len: C.uint64_t(length), id: C.uint64_t(b.ID),
		access: C.int(access), flags: C.int(b.Flags & fabric.Signaled),
	}
	var no syscall.Errno
	if send == nil {
		no = errno(C.snv_post_bind(q.sq, bind))
	} else {
		no = errno(C.snv_post_bind_send(q.sq, bind, C.uint64_t(*send), C.int(f)))
	}
	if uint32(w.mw.rkey) != w.rkey { // also if only the SEND was rejected
		w.setBound(&q.bound, r)
	}
	if no != 0 {
		return 0, q.postErr(op, no, nil)
	}
	return w.rkey, nil
}

// postUnbind posts the invalidation of w. It fails if key is not the current key of w. sendMu
// is held and sq is not 0.
func (q *QP) postUnbind(w *MW, key uint32, id uint64, f fabric.Flags) error {
	const op = "invalidate memory window"
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.closed:
		return q.opErr(op, net.ErrClosed, "")
	case w.in != &q.bound || w.rkey != key:
		return q.opErr(op, syscall.EINVAL, "the window is not bound to this queue pair")
	}
	if no := errno(C.snv_post_local_inv(q.sq, C.uint32_t(key), C.uint64_t(id), C.int(f))); no != 0 {
		return q.postErr(op, no, nil)
	}
	w.setFree()
	return nil
}
