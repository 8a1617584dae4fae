package fabrictest

import "github.com/splitnic/splitnic/fabric"

// piece returns the bytes that a record of w names, or nil if its queue pair
// may not read them. The length is not 0; Network.keys is held unless w is
// inline.
func (q *qp) piece(w *work, wr *fabric.SendWR) []byte {
	if w.Flags&fabric.Inline != 0 {
		return memoryAt(wr.Addr, wr.Len)
	}
	return q.dom.dev.table.local(q.dom, wr.LKey, wr.Addr, wr.Len, false)
}

// writable returns where a read, whose length is not 0, is to go, or nil if its
// queue pair may not write there; Network.keys is held.
func (q *qp) writable(w *work) []byte {
	return q.dom.dev.table.local(q.dom, w.LKey, w.Addr, w.Len, true)
}

// readable reports whether all pieces of w may be read; Network.keys is held.
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

// gather copies the pieces of w, which are readable, to dst, one behind the
// other.
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
