package uring

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ErrUnsupported is wrapped by errors of New about a kernel or a device that does not support
// non-blocking reads and writes through a ring. For TAP and macvtap devices this is a kernel
// before Linux 6.4.
var ErrUnsupported = errors.New("not supported by this kernel or device")

// New makes a ring for the descriptor file. The ring keeps the file open until Close. If the
// process is killed, the file stays open for some milliseconds longer than the process lives.
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
		// The kernel has no io_uring or is older than setupSubmitAll, or io_uring is turned off
		// by sysctl kernel.io_uring_disabled or by a system call filter.
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
	// The probe comes before the file is registered: to unregister it the kernel waits until no
	// processor can be using it, which takes longer than everything else here.
	if err := r.probe(file); err != nil {
		return err
	}
	// With a registered file an operation takes no reference to the file. Threads that read and
	// write the same file would contend for the reference counter.
	fds := [1]int32{int32(file)}
	if errno := r.register(registerFiles, unsafe.Pointer(&fds), 1); errno != 0 {
		return os.NewSyscallError("io_uring_register files", errno)
	}
	r.registered = true
	return nil
}

// mapMemory maps the memory that the kernel and the ring share, and fills in the values that do
// not change.
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

// probe reads 0 bytes, which consumes no frame. A device that does not support non-blocking
// reads refuses this because of RWF_NOWAIT.
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
