package verbs

// #include "shim.h"
import "C"

import (
	"maps"
	"slices"
	"sync"
	"syscall"

	"github.com/splitnic/splitnic/fabric"
)

// MW is a type-2 memory window. It implements fabric.Window, and is safe for
// concurrent use.
//
// MW records whether it is bound, because invalidating an unbound window is an error that
// crashes a machine with Soft-RoCE. When a queue pair is closed or reset, the bindings of its
// windows end: each window is deallocated, and the next bind allocates it again. So the state
// of the window on the device is always known.
type MW struct {
	pd *PD

	mu     sync.Mutex // taken after QP.sendMu, before bindings.mu and MR.mu
	closed bool
	rkey   uint32
	in     *bindings // bindings of the queue pair that the window is bound to; nil if unbound
	region *MR
	mw     *C.struct_ibv_mw // nil if the next bind has to allocate it
}

var _ fabric.Window = (*MW)(nil)

// bindings has the windows that are bound to a queue pair, by key.
type bindings struct {
	mu    sync.Mutex
	byKey map[uint32]*MW
}

func (b *bindings) add(w *MW) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.byKey == nil {
		b.byKey = make(map[uint32]*MW)
	}
	b.byKey[w.rkey] = w
}

func (b *bindings) remove(w *MW) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.byKey, w.rkey)
}

// find returns the bound window with this key, or nil if there is none.
func (b *bindings) find(key uint32) *MW {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.byKey[key]
}

// release ends all bindings.
func (b *bindings) release() error {
	b.mu.Lock()
	all := slices.Collect(maps.Values(b.byKey))
	b.mu.Unlock()
	for _, w := range all {
		if err := w.release(b); err != nil {
			return err
		}
	}
	return nil
}

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

// alloc allocates the window on the device. mu is held, or the window is not yet shared.
func (w *MW) alloc() syscall.Errno {
	if no := errno(C.snv_alloc_mw(w.pd.pd, &w.mw)); no != 0 {
		w.mw = nil
		return no
	}
	w.rkey = uint32(w.mw.rkey)
	return 0
}

// dealloc deallocates the window on the device. mu is held.
func (w *MW) dealloc() error {
	if w.mw == nil {
		return nil
	}
	if no := w.pd.ctx.given(errno(C.ibv_dealloc_mw(w.mw))); no != 0 {
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
	return w.in != nil
}

// Invalidated implements fabric.Window.
func (w *MW) Invalidated() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.setFree()
}

// setBound records that the window is bound. mu and r.mu are held.
func (w *MW) setBound(in *bindings, r *MR) {
	w.rkey = uint32(w.mw.rkey)
	w.in, w.region = in, r
	r.bound++
	in.add(w)
}

// setFree records that the window is not bound. mu is held.
func (w *MW) setFree() {
	if w.in == nil {
		return
	}
	w.in.remove(w)
	w.region.mu.Lock()
	w.region.bound--
	w.region.mu.Unlock()
	w.in, w.region = nil, nil
}

// release ends the binding and deallocates the window, if its binding is in these bindings.
func (w *MW) release(in *bindings) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.in != in {
		return nil
	}
	if err := w.dealloc(); err != nil {
		return err
	}
	w.setFree()
	return nil
}

// Close implements fabric.Window. It unbinds a bound window.
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
