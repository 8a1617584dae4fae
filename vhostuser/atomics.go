package vhostuser

import (
	"sync/atomic"
	"unsafe"
)

// load16 loads a number that the front end stores, and what it has stored before is
// there. There is no 16-bit load of package atomic: it is a half of a word, which lies in
// the same page.
func load16(p unsafe.Pointer) uint16 {
	half := uintptr(p) & 2
	return uint16(atomic.LoadUint32((*uint32)(unsafe.Add(p, -int(half)))) >> (8 * half))
}

func load32(p unsafe.Pointer) uint32 { return atomic.LoadUint32((*uint32)(p)) }

// store32 stores behind everything that was stored before.
func store32(p unsafe.Pointer, v uint32) { atomic.StoreUint32((*uint32)(p), v) }

// loadDescriptor copies one of a ring's own.
func loadDescriptor(p unsafe.Pointer) descriptor {
	return descriptor{*(*uint64)(p), *(*uint32)(unsafe.Add(p, 8)), *(*uint32)(unsafe.Add(p, 12))}
}

// barrier has later loads see what others have stored before they saw what was stored
// here.
func (r *common) barrier() { atomic.AddUint32(&r.fence, 1) }
