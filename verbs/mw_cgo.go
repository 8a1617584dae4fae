package verbs

// #include "shim.h"
import "C"

import (
	"net"
	"sync"
	"syscall"

	"github.com/splitnic/splitnic/fabric"
)

// MW is a type-2 memory window. It implements fabric.Window, and is safe for
// concurrent use.
//
// It knows whether it is bound, because invalidating an unbound window is an
// error that takes a Soft-RoCE machine down. A queue pair that is closed or
// reset takes the binding with it: the window is then given back to the
// device and allocated afresh by the next bind, so that no state of the device
// has to be guessed.
type MW struct {
	pd *PD

	mu     sync.Mutex // taken after QP.sendMu, before QP.boundMu and MR.mu
	closed bool
	rkey   uint32
	qp     *QP // bound to it; nil while unbound
	region *MR
	mw     *C.struct_ibv_mw // nil when the next bind has to allocate it
}

var _ fabric.Window = (*MW)(nil)

// NewWindow implements fabric.Domain.
//
// Implements: struct ibv_mw *ibv_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
func (d *PD) NewWindow() (fabric.Window, error) {
	const op = "allocate memory window"
	if !d.family.enter() {
		return nil, d.closedErr(op)
	}
	defer d.family.leave()
	if !d.ctx.limits.Windows {
		return nil, &OpError{Op: op, Device: d.ctx.name, Err: fabric.ErrUnsupported,
			Hint: "the device has no type-2 memory windows"}
	}
	w := &MW{pd: d}
	if no := w.alloc(); no != 0 {
		return nil, opErr(d.ctx.name, op, no, "")
	}
	d.family.add(w, rankMW)
	return w, nil
}

// alloc is called with mu held, or before the window is shared.
func (w *MW) alloc() syscall.Errno {
	if no := syscall.Errno(C.snv_alloc_mw(w.pd.pd, &w.mw)); no != 0 {
		w.mw = nil
		return no
	}
	w.rkey = uint32(w.mw.rkey)
	return 0
}

// dealloc is called with mu held.
func (w *MW) dealloc() error {
	if w.mw == nil {
		return nil
	}
	if no := syscall.Errno(C.ibv_dealloc_mw(w.mw)); no != 0 {
		return opErr(w.pd.ctx.name, "deallocate memory window", no, "")
	}
	w.mw = nil
	return nil
}

// RKey implements fabric.Window.
func (w *MW) RKey() uint32 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rkey
}

// Bound implements fabric.Window.
func (w *MW) Bound() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.qp != nil
}

// Invalidated implements fabric.Window.
func (w *MW) Invalidated() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.setFree()
}

// setBound is called with mu held.
func (w *MW) setBound(q *QP, r *MR) {
	w.rkey = uint32(w.mw.rkey)
	w.qp, w.region = q, r
	q.boundMu.Lock()
	if q.bound == nil {
		q.bound = make(map[uint32]*MW)
	}
	q.bound[w.rkey] = w
	q.boundMu.Unlock()
}

// setFree is called with mu held.
func (w *MW) setFree() {
	if w.qp == nil {
		return
	}
	w.qp.boundMu.Lock()
	delete(w.qp.bound, w.rkey)
	w.qp.boundMu.Unlock()
	w.region.mu.Lock()
	w.region.bound--
	w.region.mu.Unlock()
	w.qp, w.region = nil, nil
}

// release gives up a binding to q, if there is one.
func (w *MW) release(q *QP) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.qp != q {
		return nil
	}
	if err := w.dealloc(); err != nil {
		return err
	}
	w.setFree()
	return nil
}

// Close implements fabric.Window. A bound window is unbound by it.
//
// Implements: int ibv_dealloc_mw(struct ibv_mw *mw)
func (w *MW) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	if err := w.dealloc(); err != nil {
		return err
	}
	w.setFree()
	w.closed = true
	w.pd.family.remove(w)
	return nil
}

// bind posts the bind, and behind it, if send is not nil, a SEND of the key with
// that identifier, to which f belongs then; q.sendMu is held and q.sq not 0.
func (w *MW) bind(q *QP, r *MR, addr uint64, length int, id uint64, send *uint64, f fabric.Flags) (uint32, error) {
	const op = "bind memory window"
	w.mu.Lock()
	defer w.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case w.closed || r.mr == nil:
		return 0, q.opErr(op, net.ErrClosed, "")
	case w.qp != nil:
		return 0, q.opErr(op, syscall.EBUSY, "the window is bound: unbind it first")
	case length <= 0 || addr < r.addr || addr-r.addr > uint64(r.length) || uint64(length) > uint64(r.length)-(addr-r.addr):
		return 0, q.opErr(op, syscall.EINVAL, "the range does not lie inside the region")
	}
	if w.mw == nil {
		if no := w.alloc(); no != 0 {
			return 0, q.opErr(op, no, "")
		}
	}
	var no syscall.Errno
	if send == nil {
		no = syscall.Errno(C.snv_post_bind(q.sq, w.mw, r.mr, C.uint64_t(addr), C.uint64_t(length), C.uint64_t(id), C.int(f)))
	} else {
		no = syscall.Errno(C.snv_post_bind_send(q.sq, w.mw, r.mr, C.uint64_t(addr), C.uint64_t(length), C.uint64_t(id),
			C.uint64_t(*send), C.int(f)))
	}
	if uint32(w.mw.rkey) != w.rkey { // also where the SEND alone was refused
		r.bound++
		w.setBound(q, r)
	}
	if no != 0 {
		return 0, q.postErr(op, no, nil)
	}
	return w.rkey, nil
}

// unbind posts the invalidation; q.sendMu is held and q.sq not 0. key is what
// the caller believes the window's key to be.
func (w *MW) unbind(q *QP, key uint32, id uint64, f fabric.Flags) error {
	const op = "invalidate memory window"
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.closed:
		return q.opErr(op, net.ErrClosed, "")
	case w.qp != q || w.rkey != key:
		return q.opErr(op, syscall.EINVAL, "the window is not bound to this queue pair")
	}
	if no := syscall.Errno(C.snv_post_local_inv(q.sq, C.uint32_t(key), C.uint64_t(id), C.int(f))); no != 0 {
		return q.postErr(op, no, nil)
	}
	w.setFree()
	return nil
}
