package fabrictest

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/fabric"
)

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

// nextKey returns the key of the next bind: the same entry with the next tag.
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

// forget undoes ask: it records that no bind is posted. Network.keys is held.
func (w *window) forget() {
	if w.askedRegion == nil {
		return
	}
	w.askedRegion.asked--
	w.askedRegion, w.askedQP = nil, nil
}

// attach executes a bind and reports whether the device accepts it. Network.keys is held.
func (w *window) attach(q *qp, b *binding) bool {
	r := b.region
	if q.net.adapter.Windows == FailedWindowBind {
		return false
	}
	unwritable := b.access&fabric.RemoteWrite != 0 && r.access&fabric.LocalWrite == 0
	if w.at != nil || w.closed || r.closed || r.access&fabric.WindowBind == 0 || unwritable {
		return false
	}
	w.at, w.qp, w.last = b, q, b
	b.late.Store(q.net.adapter.Windows == LateWindowBind)
	r.bound++
	return true
}

// detach ends the binding of the window in the device. Network.keys is held.
func (w *window) detach() {
	if w.at == nil {
		return
	}
	w.at.region.bound--
	w.at.late.Store(w.dom.dev.net.adapter.Windows == LateWindowUnbind)
	w.at, w.qp = nil, nil
}
