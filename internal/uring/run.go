package uring

import (
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Read adds a read into buf to the run. A run has at most Size operations.
//
// borrowed: buf, until Run has returned.
func (r *Ring) Read(buf []byte) { r.add(opRead, buf) }

// Write adds a write of buf to the run.
//
// borrowed: buf, until Run has returned.
func (r *Ring) Write(buf []byte) { r.add(opWrite, buf) }

func (r *Ring) add(opcode uint8, buf []byte) {
	part := &r.parts[r.n][0]
	part.Base = unsafe.SliceData(buf)
	e := &r.entries[(r.base+r.n)%Size]
	e.opcode = opcode
	e.addr, e.len = uint64(uintptr(unsafe.Pointer(part.Base))), uint32(len(buf))
	r.n++
}

// Writev adds a write of head and rest as one frame to the run.
//
// borrowed: head and rest, until Run has returned.
func (r *Ring) Writev(head, rest []byte) {
	parts := &r.parts[r.n]
	parts[0].Base, parts[1].Base = unsafe.SliceData(head), unsafe.SliceData(rest)
	parts[0].SetLen(len(head))
	parts[1].SetLen(len(rest))
	e := &r.entries[(r.base+r.n)%Size]
	e.opcode = opWritev
	e.addr, e.len = uint64(uintptr(unsafe.Pointer(parts))), uint32(len(parts))
	r.n++
}

// Run makes the operations in order and returns their results: numbers of bytes, or errors as
// negative numbers. ECANCELED means that neither the operation nor the ones behind it were made.
// The results are valid until the next Run.
func (r *Ring) Run() []int32 {
	n := r.n
	made := r.submit()
	r.harvest(made)
	for i := made; i < n; i++ {
		r.res[i] = -int32(unix.ECANCELED)
	}
	for i := range r.parts[:n] {
		r.parts[i][0].Base, r.parts[i][1].Base = nil, nil
	}
	r.base += made
	r.n = 0
	return r.res[:n]
}

// submit hands the run to the kernel and returns how many operations the kernel has accepted:
// fewer than all if, for example, it has no memory for them.
func (r *Ring) submit() (made uint32) {
	atomic.StoreUint32(r.sqTail, r.base+r.n)
	for made < r.n {
		n, errno := r.enter(r.n-made, 0, 0)
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 || n == 0 {
			// The kernel reads the tail only during the call.
			atomic.StoreUint32(r.sqTail, r.base+made)
			break
		}
		made += n
	}
	return made
}

// harvest takes n results out of the completion queue. They are there when submit has returned,
// because no operation waits.
func (r *Ring) harvest(n uint32) {
	head := atomic.LoadUint32(r.cqHead)
	for n > 0 {
		tail := atomic.LoadUint32(r.cqTail)
		if head == tail {
			// This has never been seen. It would be wrong to go on while the kernel may still
			// use the memory.
			r.enter(0, n, enterGetEvents)
			continue
		}
		for ; head != tail; head++ {
			c := &r.completions[head%(2*Size)]
			r.res[(uint32(c.userData)-r.base)%Size] = c.res
			n--
		}
		atomic.StoreUint32(r.cqHead, head)
	}
}

func (r *Ring) enter(submit, wait uint32, flags uintptr) (uint32, unix.Errno) {
	r.enters.Add(1)
	n, _, errno := unix.RawSyscall6(unix.SYS_IO_URING_ENTER, uintptr(r.fd), uintptr(submit), uintptr(wait), flags, 0, 0)
	return uint32(n), errno
}
