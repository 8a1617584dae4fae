package bufpool

import (
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/numa"
)

const (
	hugePage = 2 << 20
	prot     = unix.PROT_READ | unix.PROT_WRITE
	flags    = unix.MAP_PRIVATE | unix.MAP_ANONYMOUS
)

// Arena is page-aligned, zeroed memory outside the Go heap. It neither moves
// nor grows, so that it can be registered with an RDMA device.
type Arena struct {
	mem   []byte
	close sync.Once
	err   error
}

// NewArena maps size bytes, rounded up to whole pages. From 2 MiB on it uses
// reserved huge pages (MAP_HUGETLB of mmap(2)) if enough are free, else asks
// for transparent ones. The pages come from a NUMA node, unless that is numa.None, where
// it has enough and mbind(2) is permitted.
func NewArena(size, node int) (*Arena, error) {
	if size <= 0 {
		return nil, fmt.Errorf("bufpool: arena of %d bytes", size)
	}
	if size >= hugePage {
		if mem, err := huge(roundUp(size, hugePage), node); err == nil {
			return &Arena{mem: mem}, nil
		}
	}
	mem, err := unix.Mmap(-1, 0, roundUp(size, unix.Getpagesize()), prot, flags)
	if err != nil {
		return nil, fmt.Errorf("bufpool: map %d bytes: %w", size, err)
	}
	if size >= hugePage {
		// Only advice: a kernel without transparent huge pages refuses it.
		_ = unix.Madvise(mem, unix.MADV_HUGEPAGE)
	}
	_ = numa.Prefer(mem, node)
	return &Arena{mem: mem}, nil
}

// huge maps reserved huge pages, and has all of them at once: a limit of the control group
// would be met by the first access otherwise, with SIGBUS.
func huge(size, node int) ([]byte, error) {
	mem, err := unix.Mmap(-1, 0, size, prot, flags|unix.MAP_HUGETLB)
	if err != nil {
		return nil, err
	}
	_ = numa.Prefer(mem, node)
	// Kernels before 5.14 do not know it.
	if err := unix.Madvise(mem, unix.MADV_POPULATE_WRITE); err != nil && !errors.Is(err, unix.EINVAL) {
		return nil, errors.Join(err, unix.Munmap(mem))
	}
	return mem, nil
}

// Bytes is the whole arena. It must not be used after Close.
func (a *Arena) Bytes() []byte { return a.mem }

// Close unmaps the arena. Regions over it have to be closed first.
func (a *Arena) Close() error {
	a.close.Do(func() { a.err = unix.Munmap(a.mem) })
	return a.err
}

func roundUp(n, unit int) int { return (n + unit - 1) / unit * unit }
