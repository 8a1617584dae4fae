package bufpool

import (
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/numa"
	"github.com/splitnic/splitnic/internal/units"
)

const (
	hugePage = 2 << 20
	prot     = unix.PROT_READ | unix.PROT_WRITE
	flags    = unix.MAP_PRIVATE | unix.MAP_ANONYMOUS
)

// Arena is page-aligned, zeroed memory outside the Go heap. It never moves or grows, so it
// can be registered with an RDMA device.
type Arena struct {
	mem   []byte
	close sync.Once
	err   error
}

// NewArena maps size bytes, rounded up to whole pages. For 2 MiB or more it uses reserved
// huge pages (MAP_HUGETLB of mmap(2)) if enough are free, and otherwise asks for transparent
// huge pages. The pages are on the NUMA node node if that has enough and mbind(2) is
// permitted; numa.None means any node.
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
		return nil, fmt.Errorf("bufpool: map %s: %w", units.Size(size), err)
	}
	if size >= hugePage {
		// This is only advice. A kernel without transparent huge pages returns an error.
		_ = unix.Madvise(mem, unix.MADV_HUGEPAGE)
	}
	_ = numa.Prefer(mem, node)
	return &Arena{mem: mem}, nil
}

// huge maps reserved huge pages and allocates all of them immediately. Otherwise, beyond a
// limit of the control group, the first access to a page would raise SIGBUS.
func huge(size, node int) ([]byte, error) {
	mem, err := unix.Mmap(-1, 0, size, prot, flags|unix.MAP_HUGETLB)
	if err != nil {
		return nil, err
	}
	_ = numa.Prefer(mem, node)
	// Kernels before 5.14 do not have MADV_POPULATE_WRITE.
	if err := unix.Madvise(mem, unix.MADV_POPULATE_WRITE); err != nil && !errors.Is(err, unix.EINVAL) {
		return nil, errors.Join(err, unix.Munmap(mem))
	}
	return mem, nil
}

// Bytes returns the whole memory. It must not be used after Close.
func (a *Arena) Bytes() []byte { return a.mem }

// Close unmaps the arena. The regions in it must be closed before.
func (a *Arena) Close() error {
	a.close.Do(func() { a.err = unix.Munmap(a.mem) })
	return a.err
}

func roundUp(n, unit int) int { return (n + unit - 1) / unit * unit }
