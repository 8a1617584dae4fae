package vhostuser

import (
	"sync/atomic"
	"unsafe"
)

// load16 loads a number that the front end stores. Everything that the front end has stored before is
// visible then. Package atomic has no 16-bit load, so load16 loads the word with the number, which is
// in the same page.
func load16(p unsafe.Pointer) uint16 {
	half := uintptr(p) & 2
	return uint16(atomic.LoadUint32((*uint32)(unsafe.Add(p, -int(half)))) >> (8 * half))
}

func load32(p unsafe.Pointer) uint32 { return atomic.LoadUint32((*uint32)(p)) }

// store32 stores a number after all earlier stores.
func store32(p unsafe.Pointer, v uint32) { atomic.StoreUint32((*uint32)(p), v) }

// loadDescriptor copies a descriptor of a ring.
func loadDescriptor(p unsafe.Pointer) descriptor {
	return descriptor{*(*uint64)(p), *(*uint32)(unsafe.Add(p, 8)), *(*uint32)(unsafe.Add(p, 12))}
}

// barrier is a full memory barrier: later loads do not precede earlier stores.
func (r *common) barrier() { atomic.AddUint32(&r.fence, 1) }
