package fabrictest

import "sync"

// window has two states that are not the same at every moment: what the owner
// has asked for, and what the device has carried out so far.
type window struct {
	dom *domain

	mu     sync.Mutex // guards what the owner knows
	rkey   uint32     // of the latest bind
	bound  bool
	closed bool

	// What the device knows, guarded by Network.keys: region is nil while unbound.
	region *region
	qp     *qp
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
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rkey
}

// Bound implements fabric.Window.
func (w *window) Bound() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.bound
}

// Invalidated implements fabric.Window.
func (w *window) Invalidated() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bound = false
}

// Close implements fabric.Window. A bound window may be closed.
func (w *window) Close() error {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return nil
	}
	w.closed, w.bound = true, false
	key := w.rkey
	w.mu.Unlock()
	d := w.dom
	d.dev.net.keys.Lock()
	w.detach()
	d.dev.table.give(key)
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

// attach carries out a bind; Network.keys is held. It reports whether the
// device accepts it.
func (w *window) attach(q *qp, b *binding) bool {
	r := b.region
	if w.region != nil || r.closed || r.dom != q.dom || w.dom != q.dom || !r.mayBind || !r.mayWriteLocal ||
		!within(b.addr, b.length, r.addr, uint64(len(r.mem))) {
		return false
	}
	if e := w.dom.dev.table.find(b.key); e == nil || e.window != w {
		return false // closed since it was posted
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
