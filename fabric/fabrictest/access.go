package fabrictest

import (
	"math"
	"unsafe"

	"github.com/splitnic/splitnic/fabric"
)

// piece returns the bytes of the record wr of w, or nil if q may not read them. The length is
// not 0. Network.keys is held, unless w is inline.
func (q *qp) piece(w *work, wr *fabric.SendWR) []byte {
	if w.Flags&fabric.Inline != 0 {
		return memoryAt(wr.Addr, wr.Len)
	}
	return q.dom.dev.table.local(q.dom, wr.LKey, wr.Addr, wr.Len, false)
}

// writable returns the destination of a read, or nil if q may not write there. The length is
// not 0. Network.keys is held.
func (q *qp) writable(w *work) []byte {
	return q.dom.dev.table.local(q.dom, w.LKey, w.Addr, w.Len, true)
}

// readable reports whether q may read all pieces of w. Network.keys is held.
func (q *qp) readable(w *work) bool {
	if w.Flags&fabric.Inline != 0 {
		return true
	}
	if w.Len != 0 && q.piece(w, &w.SendWR) == nil {
		return false
	}
	for i := range w.more {
		if m := &w.more[i]; m.Len != 0 && q.piece(w, m) == nil {
			return false
		}
	}
	return true
}

// gather copies the pieces of w to dst, one after the other. All pieces are readable.
func (q *qp) gather(dst []byte, w *work) {
	if w.data != nil {
		copy(dst, w.data)
		return
	}
	if w.Len != 0 {
		dst = dst[copy(dst, q.piece(w, &w.SendWR)):]
	}
	for i := range w.more {
		if m := &w.more[i]; m.Len != 0 {
			dst = dst[copy(dst, q.piece(w, m)):]
		}
	}
}

// local returns the memory of a work request in dom with a local key, or nil if access is not
// permitted.
func (t *keyTable) local(dom *domain, lkey uint32, addr uint64, length uint32, write bool) []byte {
	e := t.find(lkey &^ localBit)
	if e == nil || e.region == nil {
		return nil
	}
	r := e.region
	if r.LKey() != lkey || r.dom != dom || write && r.access&fabric.LocalWrite == 0 {
		return nil
	}
	return r.slice(addr, length)
}

// remote returns the memory of a message received by q with a remote key, or nil if access is
// not permitted.
func (t *keyTable) remote(q *qp, op fabric.Opcode, rkey uint32, addr uint64, length uint32) []byte {
	e := t.find(rkey)
	if e == nil {
		return nil
	}
	right := fabric.RemoteWrite
	if op == fabric.OpRead {
		right = fabric.RemoteRead
	}
	if r := e.region; r != nil {
		if r.rkey != rkey || r.dom != q.dom || r.access&right == 0 {
			return nil
		}
		return r.slice(addr, length)
	}
	w := e.window
	fault := q.dom.dev.net.adapter.Windows
	if w != nil && w.last != nil && fault == UncheckedWindows && w.dom == q.dom && !w.last.region.closed {
		return w.last.region.slice(addr, length)
	}
	if w != nil && w.at == nil && w.last != nil && w.last.key == rkey && !w.last.region.closed && w.last.late.Swap(false) {
		return w.last.region.slice(addr, length)
	}
	if w == nil || w.at == nil || w.at.key != rkey || w.at.late.Swap(false) {
		return nil
	}
	if w.qp != q && (fault != SharedWindows || w.dom != q.dom) {
		return nil
	}
	if w.at.access&right == 0 {
		return nil
	}
	size := w.at.length
	if fault == OpenEndedWindows {
		size = math.MaxUint64 - w.at.addr
	}
	bounds := q.dom.dev.net.limits.WindowBounds && fault != UnboundedWindows
	if bounds && !within(addr, uint64(length), w.at.addr, size) {
		return nil
	}
	return w.at.region.slice(addr, length)
}

// memoryAt returns the bytes at an address. Inline data need not be registered, so the caller of
// PostSend is responsible for the address.
func memoryAt(addr uint64, length uint32) []byte {
	p := uintptr(addr)
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&p)), length)
}
