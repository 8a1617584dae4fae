package fabrictest

import (
	"math/rand/v2"

	"github.com/splitnic/splitnic/fabric"
)

// A key is a table index in its upper 24 bits and a tag in the lower 8, as in
// the InfiniBand specification; the tag changes with each use of the entry.
// Local keys have the top bit on top of that.
const (
	tagBits  = 8
	localBit = 1 << 31
)

// keyTable holds the keys of one device. Network.keys guards it.
type keyTable struct {
	base    uint32 // index of the first entry; random, so that keys of two devices differ
	entries []keyEntry
	free    []uint32 // indices into entries
}

type keyEntry struct {
	region *region
	window *window
	tag    uint8
}

func (t *keyTable) init() { t.base = 1 + rand.Uint32N(1<<16) }

// take reserves an entry and returns the key that stands for it.
func (t *keyTable) take() (e *keyEntry, key uint32) {
	var i uint32
	if n := len(t.free); n > 64 { // reuse late, so that stale keys stay unknown for long
		i = t.free[0]
		t.free = t.free[1:]
	} else {
		i = uint32(len(t.entries))
		t.entries = append(t.entries, keyEntry{tag: uint8(rand.Uint32())})
	}
	e = &t.entries[i]
	e.tag++
	return e, (t.base+i)<<tagBits | uint32(e.tag)
}

// give puts the entry of key back.
func (t *keyTable) give(key uint32) {
	i := key>>tagBits - t.base
	t.entries[i] = keyEntry{tag: uint8(key)}
	t.free = append(t.free, i)
}

func (t *keyTable) find(key uint32) *keyEntry {
	i := key>>tagBits - t.base
	if uint64(i) >= uint64(len(t.entries)) {
		return nil
	}
	return &t.entries[i]
}

// local returns the memory that a work request of dom names by a local key, or
// nil if it may not use it.
func (t *keyTable) local(dom *domain, lkey uint32, addr uint64, length uint32, write bool) []byte {
	e := t.find(lkey &^ localBit)
	if e == nil || e.region == nil {
		return nil
	}
	r := e.region
	if r.lkey != lkey || r.dom != dom || write && !r.mayWriteLocal {
		return nil
	}
	return r.slice(addr, length)
}

// remote returns the memory that a message arriving on q names by a remote
// key, or nil if the peer may not do that there.
func (t *keyTable) remote(q *qp, op fabric.Opcode, rkey uint32, addr uint64, length uint32) []byte {
	e := t.find(rkey)
	if e == nil {
		return nil
	}
	if r := e.region; r != nil {
		may := r.mayWriteRemote
		if op == fabric.OpRead {
			may = r.mayReadRemote
		}
		if r.rkey != rkey || r.dom != q.dom || !may {
			return nil
		}
		return r.slice(addr, length)
	}
	if op == fabric.OpRead {
		return nil
	}
	w := e.window
	if w == nil || w.region == nil || w.key != rkey || w.qp != q {
		return nil
	}
	if q.dom.dev.net.limits.WindowBounds && !within(addr, uint64(length), w.addr, w.length) {
		return nil
	}
	return w.region.slice(addr, length)
}

// within reports whether [addr, addr+length) lies in [base, base+size); no sum
// can wrap.
func within(addr, length, base, size uint64) bool {
	return addr >= base && addr-base <= size && length <= size-(addr-base)
}
