package vnet

import "sync/atomic"

// Region is a part of a Memory. It counts its holds, and stays mapped until the last one is
// released.
type Region struct {
	Bytes []byte
	holds atomic.Int32
	unmap func() error
}

// NewRegion makes a region with one hold. unmap is called when the last hold is released.
func NewRegion(b []byte, unmap func() error) *Region {
	r := &Region{Bytes: b, unmap: unmap}
	r.holds.Store(1)
	return r
}

// Hold adds a hold and returns true, or returns false if the region is unmapped already.
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

// Release releases one hold. If it was the last one Release returns the result of unmap.
func (r *Region) Release() error {
	if r.holds.Add(-1) > 0 {
		return nil
	}
	return r.unmap()
}

// Memory is memory of a virtual machine with frames in it. Its regions do not change: if the
// virtual machine's memory changes, another Memory takes its place. The two may have regions in
// common.
type Memory struct {
	Regions []*Region
	lent    atomic.Int64
}

// Lend adds n to the number of lent parts of frames, which others read. A negative n is for
// parts that have been returned. Lend returns the new number.
func (m *Memory) Lend(n int) (outstanding int64) { return m.lent.Add(int64(n)) }

// Keys has the keys by which an RDMA device reads the regions of a Memory. It does not change.
type Keys struct {
	Memory *Memory
	Keys   []Key // one for each of Memory.Regions
}

// Key is the key of one region. Known is false if the region is not registered.
type Key struct {
	LKey  uint32
	Known bool
}

// Piece is a part of a frame that lies in one region.
type Piece struct {
	Mem  []byte
	LKey uint32
}

// Lent is the lent rest of a frame, which is not copied. Its pieces follow ReadOp.Frame, a copy
// of the beginning. Without pieces nothing is lent. The writer of the frame may change the
// content of the pieces at any time.
type Lent struct {
	Pieces []Piece // memory of the caller; its capacity is the limit
	Size   int     // bytes of the whole frame
	Loan   Loan
}

// Loan identifies a lent part of a frame to its port until it is returned.
type Loan struct {
	Memory             *Memory
	Ring, Epoch, Chain uint32
}

// Extend adds mem behind the pieces. If mem begins where the last piece ends, and has the same
// key, it extends that piece. Extend returns false if there is no room for another piece.
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
