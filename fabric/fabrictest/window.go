package fabrictest

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/fabric"
)

// window has two states that are not the same at every moment: what its owner
// asked for, and what the device has carried out so far. Network.keys guards
// both.
type window struct {
	dom    *domain
	closed bool

	rkey        uint32  // of the latest bind that was asked for
	askedRegion *region // nil while no bind is
	askedQP     *qp

	region *region // nil while unbound in the device
	qp     *qp
	key    uint32
	addr   uint64
	length uint64
}

// binding says which part of which region a window is to stand for.
type binding struct {
	window *window
	region *region
	key    uint32
	addr   uint64
	length uint64
}

func newWindow(d *domain) *window {
	w := &window{dom: d}
	d.dev.net.keys.Lock()
	defer d.dev.net.keys.Unlock()
	var e *keyEntry
	e, w.rkey = d.dev.table.take()
	e.window = w
	return w
}

// RKey implements fabric.Window.
func (w *window) RKey() uint32 {
	w.dom.dev.net.keys.RLock()
	defer w.dom.dev.net.keys.RUnlock()
	return w.rkey
}

// Bound implements fabric.Window.
func (w *window) Bound() bool {
	w.dom.dev.net.keys.RLock()
	defer w.dom.dev.net.keys.RUnlock()
	return w.askedRegion != nil
}

// Invalidated implements fabric.Window.
func (w *window) Invalidated() {
	w.dom.dev.net.keys.Lock()
	defer w.dom.dev.net.keys.Unlock()
	w.forget()
}

// Close implements fabric.Window. A bound window may be closed.
func (w *window) Close() error {
	d := w.dom
	d.dev.net.keys.Lock()
	if w.closed {
		d.dev.net.keys.Unlock()
		return nil
	}
	w.closed = true
	w.forget()
	w.detach()
	d.dev.table.give(w.rkey)
	d.dev.net.keys.Unlock()
	d.mu.Lock()
	delete(d.windows, w)
	d.mu.Unlock()
	return nil
}

// nextKey is the key of the next bind: the same entry with the next tag.
func nextKey(key uint32) uint32 {
	const tags = 1<<tagBits - 1
	return key&^tags | (key+1)&tags
}

// ask records that a bind is posted to q and returns its key.
func (w *window) ask(q *qp, r *region, addr uint64, length int) (uint32, error) {
	q.net.keys.Lock()
	defer q.net.keys.Unlock()
	switch {
	case w.closed || r.closed:
		return 0, net.ErrClosed
	case w.dom != q.dom || r.dom != q.dom:
		return 0, fmt.Errorf("the memory window and its region must be of the queue pair's domain: %w", unix.EINVAL)
	case w.askedRegion != nil:
		return 0, fmt.Errorf("the memory window is bound already; unbind it first: %w", unix.EBUSY)
	case length < 1 || !within(addr, uint64(length), r.addr, uint64(len(r.mem))):
		return 0, fmt.Errorf("%d bytes at %#x do not lie in the region: %w", length, addr, unix.EINVAL)
	}
	w.rkey = nextKey(w.rkey)
	w.askedRegion, w.askedQP = r, q
	r.asked++
	return w.rkey, nil
}

// unask records that the invalidation of key is posted to q.
func (q *qp) unask(key uint32) error {
	q.net.keys.Lock()
	defer q.net.keys.Unlock()
	e := q.dom.dev.table.find(key)
	if e == nil || e.window == nil || e.window.rkey != key || e.window.askedQP != q {
		return fmt.Errorf("no memory window with key %#x is bound to it: %w", key, unix.EINVAL)
	}
	e.window.forget()
	return nil
}

// forget ends what ask began; Network.keys is held.
func (w *window) forget() {
	if w.askedRegion == nil {
		return
	}
	w.askedRegion.asked--
	w.askedRegion, w.askedQP = nil, nil
}

// attach carries out a bind; Network.keys is held. It reports whether the
// device accepts it.
func (w *window) attach(q *qp, b *binding) bool {
	r := b.region
	if w.region != nil || w.closed || r.closed || !r.mayBind || !r.mayWriteLocal {
		return false
	}
	w.region, w.qp, w.key, w.addr, w.length = r, q, b.key, b.addr, b.length
	r.bound++
	return true
}

// detach takes the window off its region; Network.keys is held.
func (w *window) detach() {
	if w.region == nil {
		return
	}
	w.region.bound--
	w.region, w.qp = nil, nil
}

// Bind implements fabric.QP.
func (q *qp) Bind(
	w fabric.Window, r fabric.Region, addr uint64, length int, id uint64, f fabric.Flags,
) (uint32, error) {
	return q.bind(w, r, addr, length, &work{SendWR: fabric.SendWR{ID: id, Flags: f}}, nil)
}

// BindSend implements fabric.QP.
func (q *qp) BindSend(
	w fabric.Window, r fabric.Region, addr uint64, length int, bind, send uint64, f fabric.Flags,
) (uint32, error) {
	return q.bind(w, r, addr, length, &work{SendWR: fabric.SendWR{ID: bind}},
		&work{SendWR: fabric.SendWR{ID: send, Op: fabric.OpSendImm, Flags: f &^ fabric.More}})
}

// bind posts a bind, and a SEND of the key behind it if that is not nil.
func (q *qp) bind(
	w fabric.Window, r fabric.Region, addr uint64, length int, bind, send *work,
) (uint32, error) {
	const doing = "binding a memory window on"
	win, ok1 := w.(*window)
	reg, ok2 := r.(*region)
	if !ok1 || !ok2 {
		return 0, q.errorf(doing, fmt.Errorf("window or region are not of this fabric: %w", unix.EINVAL))
	}
	q.sq.Lock()
	defer q.sq.Unlock()
	slots := uint64(1)
	if send != nil {
		slots++
	}
	if err := q.checkSlots(slots); err != nil {
		return 0, q.errorf(doing, err)
	}
	key, err := win.ask(q, reg, addr, length)
	if err != nil {
		return 0, q.errorf(doing, err)
	}
	bind.Op, bind.RKey, bind.Flags = fabric.OpBind, key, bind.Flags&^fabric.Inline
	bind.bind = &binding{window: win, region: reg, key: key, addr: addr, length: uint64(length)}
	q.submit(bind)
	if send != nil {
		send.Imm = key
		q.submit(send)
	}
	return key, nil
}

// Unbind implements fabric.QP.
func (q *qp) Unbind(w fabric.Window, id uint64, f fabric.Flags) error {
	const doing = "unbinding a memory window on"
	win, ok := w.(*window)
	if !ok {
		return q.errorf(doing, fmt.Errorf("the window is not of this fabric: %w", unix.EINVAL))
	}
	q.sq.Lock()
	defer q.sq.Unlock()
	if err := q.checkSlot(); err != nil {
		return q.errorf(doing, err)
	}
	key := win.RKey()
	if err := q.unask(key); err != nil {
		return q.errorf(doing, err)
	}
	q.submit(&work{SendWR: fabric.SendWR{ID: id, Op: fabric.OpLocalInv, Flags: f &^ fabric.Inline, RKey: key}})
	return nil
}
