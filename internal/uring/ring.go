// Package uring moves several frames through a character device by one system
// call, by the kernel's io_uring(7).
//
// A TAP-like device moves one frame in each read(2) or write(2) and knows
// nothing like recvmmsg(2). A [Ring] hands the kernel a list of reads, or of
// writes, and the kernel makes them one after the other, on the caller's own
// thread and before the call returns: none is ever left waiting, since each
// says RWF_NOWAIT. So a ring saves system calls, and the work of finding the
// descriptor each time, and is nothing else.
package uring

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Size is how many operations one run can have.
const Size = 64

// ErrUnsupported is wrapped by errors of New about a kernel, or a device, that
// cannot read and write without waiting in this way: one before Linux 6.4, for
// TAP and macvtap devices.
var ErrUnsupported = errors.New("not supported by this kernel or device")

// Ring is a list of operations on one descriptor. It is for one goroutine at a
// time, which need not stay on its thread.
type Ring struct {
	fd         int // of the ring itself; -1 for none
	registered bool
	rings      []byte // the memory of both queues
	memory     []byte // of entries
	entries    *[Size]entry

	sqTail, cqHead, cqTail *uint32
	completions            *[2 * Size]completion

	base   uint32 // the tail of the submission queue before this run
	n      uint32 // operations in this run
	res    [Size]int32
	parts  [Size][2]unix.Iovec // what they move: keeps it alive, and off stacks, which move
	enters atomic.Uint64
}

// New makes a ring for the descriptor file. The ring holds the file open until
// Close; when a process is killed, for some milliseconds longer than the
// process lives.
func New(file int) (*Ring, error) {
	r := &Ring{fd: -1}
	if err := r.open(file); err != nil {
		return nil, fmt.Errorf("setting up a ring: %w", errors.Join(err, r.Close()))
	}
	return r, nil
}

func (r *Ring) open(file int) error {
	p := params{flags: setupSubmitAll}
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, Size, uintptr(unsafe.Pointer(&p)), 0)
	switch errno {
	case 0:
	case unix.ENOSYS, unix.EPERM, unix.EINVAL:
		// No io_uring, turned off by sysctl kernel.io_uring_disabled or a
		// filter of system calls, or older than setupSubmitAll.
		return fmt.Errorf("%w: %w", ErrUnsupported, os.NewSyscallError("io_uring_setup", errno))
	default:
		return os.NewSyscallError("io_uring_setup", errno)
	}
	r.fd = int(fd) // the kernel makes it close-on-exec
	const need = featSingleMmap | featNoDrop
	if p.features&need != need || p.sqEntries != Size || p.cqEntries != 2*Size {
		return fmt.Errorf("%w: features %#x, %d and %d entries", ErrUnsupported, p.features, p.sqEntries, p.cqEntries)
	}
	if err := r.mapMemory(&p); err != nil {
		return err
	}
	// Before the file is registered: to take that back the kernel waits until no
	// processor can be using it, which is longer than all else here.
	if err := r.probe(file); err != nil {
		return err
	}
	// A registered file costs no reference for each operation, which the
	// threads of a process that read and write the same file fight for.
	fds := [1]int32{int32(file)}
	if errno := r.register(registerFiles, unsafe.Pointer(&fds), 1); errno != 0 {
		return os.NewSyscallError("io_uring_register files", errno)
	}
	r.registered = true
	return nil
}

func (r *Ring) register(op uintptr, arg unsafe.Pointer, n uintptr) unix.Errno {
	_, _, errno := unix.Syscall6(unix.SYS_IO_URING_REGISTER, uintptr(r.fd), op, uintptr(arg), n, 0, 0)
	return errno
}

// mapMemory maps what the kernel and the ring share, and fills in what stays.
func (r *Ring) mapMemory(p *params) (err error) {
	const prot, flags = unix.PROT_READ | unix.PROT_WRITE, unix.MAP_SHARED | unix.MAP_POPULATE
	size := max(int(p.sqOff.array)+Size*4, int(p.cqOff.cqes)+2*Size*int(unsafe.Sizeof(completion{})))
	if r.rings, err = unix.Mmap(r.fd, 0, size, prot, flags); err != nil {
		return os.NewSyscallError("mmap", err)
	}
	if r.memory, err = unix.Mmap(r.fd, offEntries, Size*int(unsafe.Sizeof(entry{})), prot, flags); err != nil {
		return os.NewSyscallError("mmap", err)
	}
	word := func(off uint32) *uint32 { return (*uint32)(unsafe.Pointer(&r.rings[off])) }
	r.sqTail, r.cqHead, r.cqTail = word(p.sqOff.tail), word(p.cqOff.head), word(p.cqOff.tail)
	r.completions = (*[2 * Size]completion)(unsafe.Pointer(&r.rings[p.cqOff.cqes]))
	r.entries = (*[Size]entry)(unsafe.Pointer(&r.memory[0]))
	// Entry i is always in place i of the queue.
	order := (*[Size]uint32)(unsafe.Pointer(&r.rings[p.sqOff.array]))
	for i := range order {
		order[i] = uint32(i)
		r.entries[i] = entry{flags: entryFixedFile, rwFlags: unix.RWF_NOWAIT, userData: uint64(i)}
	}
	return nil
}

// probe reads nothing, which takes no frame away. A device that cannot read
// without waiting refuses it because of RWF_NOWAIT.
func (r *Ring) probe(file int) error {
	first := r.entries[0]
	r.entries[0].flags, r.entries[0].file = 0, int32(file)
	r.Read(nil)
	errno := unix.Errno(-min(r.Run()[0], 0))
	r.entries[0] = first
	switch errno {
	case 0, unix.EAGAIN:
		return nil
	case unix.EOPNOTSUPP, unix.EINVAL:
		return fmt.Errorf("%w: reading without waiting: %w", ErrUnsupported, errno)
	default:
		return fmt.Errorf("reading without waiting: %w", errno)
	}
}

// Enters returns how many system calls the runs have taken. It may be called
// from any goroutine.
func (r *Ring) Enters() uint64 { return r.enters.Load() }

// Close frees the ring, which must not be in use, and lets go of the file. It
// is idempotent.
func (r *Ring) Close() error {
	var errs []error
	if r.registered {
		r.registered = false
		// The kernel does this at once, and what is left of a closed ring later.
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
