// Package uring moves several frames through a character device in one system call, with the
// kernel's io_uring(7).
//
// A TAP-like device moves one frame in each read(2) or write(2), and has no counterpart of
// recvmmsg(2). A [Ring] hands the kernel a list of reads, or of writes. The kernel makes them
// one after the other, on the caller's own thread and before the call returns. No operation is
// ever left waiting, because each has RWF_NOWAIT. So a ring saves system calls, and the look-up
// of the descriptor in each of them, and does nothing else.
package uring

import (
	"errors"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Size is the largest number of operations in one run.
const Size = 64

// Ring is a list of operations on one descriptor. Only one goroutine at a time may use it, which
// need not stay on its thread.
type Ring struct {
	fd         int // of the ring itself; -1 for none
	registered bool
	rings      []byte // the memory of both queues
	memory     []byte // the memory of entries
	entries    *[Size]entry

	sqTail, cqHead, cqTail *uint32
	completions            *[2 * Size]completion

	base   uint32 // the tail of the submission queue before this run
	n      uint32 // operations in this run
	res    [Size]int32
	parts  [Size][2]unix.Iovec // their buffers: kept alive, and off stacks, which move
	enters atomic.Uint64
}

func (r *Ring) register(op uintptr, arg unsafe.Pointer, n uintptr) unix.Errno {
	_, _, errno := unix.Syscall6(unix.SYS_IO_URING_REGISTER, uintptr(r.fd), op, uintptr(arg), n, 0, 0)
	return errno
}

// Enters returns how many system calls the runs have taken. It may be called
// from any goroutine.
func (r *Ring) Enters() uint64 { return r.enters.Load() }

// Close frees the ring, which must not be in use, and releases the file. It is idempotent.
func (r *Ring) Close() error {
	var errs []error
	if r.registered {
		r.registered = false
		// The kernel unregisters the file at once, but frees a closed ring only later.
		if errno := r.register(unregisterFiles, nil, 0); errno != 0 {
			errs = append(errs, os.NewSyscallError("io_uring_register no files", errno))
		}
	}
	for _, m := range []*[]byte{&r.rings, &r.memory} {
		if *m != nil {
			errs = append(errs, os.NewSyscallError("munmap", unix.Munmap(*m)))
			*m = nil
		}
	}
	if r.fd >= 0 {
		errs = append(errs, os.NewSyscallError("close", unix.Close(r.fd)))
		r.fd = -1
	}
	return errors.Join(errs...)
}
