package bufpool

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

const hugePage = 2 << 20

// Arena is page-aligned, zeroed memory outside the Go heap. It neither moves
// nor grows, so that it can be registered with an RDMA device.
type Arena struct {
	mem   []byte
	close sync.Once
	err   error
}

// NewArena maps size bytes, rounded up to whole pages. From 2 MiB on it uses
// reserved huge pages (MAP_HUGETLB of mmap(2)) if enough are free, else asks
// for transparent ones.
func NewArena(size int) (*Arena, error) {
	if size <= 0 {
		return nil, fmt.Errorf("bufpool: arena of %d bytes", size)
	}
	const prot = unix.PROT_READ | unix.PROT_WRITE
	const flags = unix.MAP_PRIVATE | unix.MAP_ANONYMOUS
	if size >= hugePage {
		mem, err := unix.Mmap(-1, 0, roundUp(size, hugePage), prot, flags|unix.MAP_HUGETLB|unix.MAP_POPULATE)
		if err == nil {
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
	return &Arena{mem: mem}, nil
}

// Bytes is the whole arena. It must not be used after Close.
func (a *Arena) Bytes() []byte { return a.mem }

// Close unmaps the arena. Regions over it have to be closed first.
func (a *Arena) Close() error {
	a.close.Do(func() { a.err = unix.Munmap(a.mem) })
	return a.err
}

func roundUp(n, unit int) int { return (n + unit - 1) / unit * unit }
