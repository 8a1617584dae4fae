package vnet

import "sync/atomic"

// Region is a part of a Memory. It stays mapped as long as somebody holds it.
type Region struct {
	Bytes []byte
	holds atomic.Int32
	unmap func() error
}

// NewRegion makes a region that is held once. unmap is called when nobody holds it any
// more.
func NewRegion(b []byte, unmap func() error) *Region {
	r := &Region{Bytes: b, unmap: unmap}
	r.holds.Store(1)
	return r
}

// Hold holds the region once more, unless it is unmapped already.
func (r *Region) Hold() bool {
	for {
		n := r.holds.Load()
		if n == 0 {
			return false
		}
		if r.holds.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// Release ends one hold.
func (r *Region) Release() error {
	if r.holds.Add(-1) > 0 {
		return nil
	}
	return r.unmap()
}

// Memory is memory of somebody else's in which frames lie, a virtual machine's. Its
// regions do not change: another Memory takes its place, which may have regions in common
// with it.
type Memory struct {
	Regions []*Region
	lent    atomic.Int64
}

// Lend counts n parts of frames that somebody else reads from now on, or who has
// returned them, if n is negative. It returns how many there are.
func (m *Memory) Lend(n int) (outstanding int64) { return m.lent.Add(int64(n)) }

// Keys are those by which an RDMA device reads the regions of a Memory. They do not
// change.
type Keys struct {
	Memory *Memory
	Keys   []Key // of its regions
}

// Key is that of a region, if it is registered.
type Key struct {
	LKey  uint32
	Known bool
}

// Piece is a part of a frame that lies in one region.
type Piece struct {
	Mem  []byte
	LKey uint32
}

// Lent is what of a frame was left where it lies: its pieces follow ReadOp.Frame, which
// is a copy of the beginning. Without pieces nothing was. Who wrote the frame may change
// what is in them at any time.
type Lent struct {
	Pieces []Piece // the caller's; as many as it has capacity for
	Size   int     // bytes of the whole frame
	Loan   Loan
}

// Loan is by what a port knows that it has lent a part of a frame, until it is returned.
type Loan struct {
	Memory             *Memory
	Ring, Epoch, Chain uint32
}

// Extend adds memory behind the pieces, to the last one if that ends where it begins, and
// reports whether there is room.
func (l *Lent) Extend(mem []byte, lkey uint32) bool {
	if n := len(l.Pieces); n > 0 {
		last := &l.Pieces[n-1]
		if k := len(last.Mem); last.LKey == lkey && cap(last.Mem)-k >= len(mem) && &last.Mem[:k+1][k] == &mem[0] {
			last.Mem = last.Mem[:k+len(mem)]
			return true
		}
	}
	if len(l.Pieces) == cap(l.Pieces) {
		return false
	}
	l.Pieces = append(l.Pieces, Piece{Mem: mem, LKey: lkey})
	return true
}
