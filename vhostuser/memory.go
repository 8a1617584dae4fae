package vhostuser

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/vnet"
)

// region is a mapped part of the front end's memory.
type region struct {
	guest  uint64 // address in descriptors
	size   uint64 // bytes
	user   uint64 // address in the front end's process, used for rings
	offset uint64 // in the file

	dev, ino uint64       // identity of the file
	mem      []byte       // bytes of the region; nil before mapRegion
	mapping  []byte       // whole mapping: it begins and ends at a page boundary
	held     *vnet.Region // reference to the mapping, for lending
}

// memory has all regions, in the order of guest addresses. It is immutable: a change makes a new one.
type memory struct {
	regions []region
	shared  *vnet.Memory // the same regions, for lending
}

// mapRegion maps a region of the file. The caller keeps the descriptor.
func (r *region) mapRegion(fd int) error {
	fail := func(why string, args ...any) error {
		return fmt.Errorf("%w: a region of %d bytes at %#x: %s", ErrFrontEnd, r.size, r.guest, fmt.Sprintf(why, args...))
	}
	if r.size == 0 || r.size > math.MaxInt64/2 || r.offset > math.MaxInt64/2 ||
		r.guest > math.MaxUint64-r.size || r.user > math.MaxUint64-r.size {
		return fail("it has no bytes, or ends behind the last address")
	}
	if !inMemory(fd) {
		return fail("%v", errNotInMemory)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fail("fstat: %v", err)
	}
	if uint64(st.Size) < r.offset+r.size {
		return fail("its file ends after %d bytes, within the region, which begins at %d", st.Size, r.offset)
	}
	// Pages may be huge. The mapping has to consist of whole pages.
	page := uint64(max(os.Getpagesize(), int(st.Blksize)))
	if page&(page-1) != 0 {
		page = uint64(os.Getpagesize())
	}
	start := r.offset &^ (page - 1)
	length := (r.offset - start + r.size + page - 1) &^ (page - 1)
	m, err := unix.Mmap(fd, int64(start), int(length), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_NORESERVE)
	if err != nil {
		return fail("mmap: %v", err)
	}
	// A child process would inherit the guest's memory.
	_ = unix.Madvise(m, unix.MADV_DONTFORK)
	_ = unix.Madvise(m, unix.MADV_DONTDUMP)
	r.dev, r.ino = st.Dev, st.Ino
	r.mapping = m
	r.mem = m[r.offset-start:][:r.size:r.size]
	r.held = vnet.NewRegion(r.mem, func() error { return os.NewSyscallError("munmap", unix.Munmap(m)) })
	return nil
}

// errNotInMemory is the error of a descriptor that is not of a file of tmpfs or hugetlbfs.
var errNotInMemory = errors.New("its descriptor is not of a file in memory; use memory-backend-memfd, or " +
	"memory-backend-file below /dev/shm or /dev/hugepages, with share=on")

// inMemory reports whether a descriptor is of a file of tmpfs or hugetlbfs, as those of memfd_create
// are. The pages of other files can come from another process (FUSE) or machine (NFS), and an access
// would wait for it as long as that likes, with a lock of the device. Only files of these two have
// seals. Unlike fstatfs and fstat, the question does not reach the server of a file system, which
// might not answer.
func inMemory(fd int) bool {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	return err == nil
}

// unmap releases the region. It is unmapped when the last reference is released.
func (r *region) unmap() error {
	if r.held == nil {
		return nil
	}
	err := r.held.Release()
	r.mem, r.mapping, r.held = nil, nil, nil
	return err
}

// same reports whether both regions have the same addresses.
func (r *region) same(o *region) bool {
	return r.guest == o.guest && r.size == o.size && r.user == o.user
}

// sameFile reports whether both regions have the same addresses and the same part of the same file.
func (r *region) sameFile(o *region) bool {
	return r.same(o) && r.offset == o.offset && r.dev == o.dev && r.ino == o.ino
}

// newMemory returns a memory with the mapped regions. Regions must not overlap.
func newMemory(regions []region) (*memory, error) {
	m := &memory{regions: slices.Clone(regions), shared: &vnet.Memory{}}
	if len(m.regions) > maxRegions {
		return nil, fmt.Errorf("%w: %d regions of memory; there may be %d", ErrFrontEnd, len(m.regions), maxRegions)
	}
	for _, key := range []func(*region) uint64{
		func(r *region) uint64 { return r.user }, func(r *region) uint64 { return r.guest },
	} {
		slices.SortFunc(m.regions, func(a, b region) int { return cmp.Compare(key(&a), key(&b)) })
		for i := 1; i < len(m.regions); i++ {
			if a, b := &m.regions[i-1], &m.regions[i]; key(b)-key(a) < a.size {
				return nil, fmt.Errorf("%w: regions of memory at %#x and %#x overlap", ErrFrontEnd, a.guest, b.guest)
			}
		}
	}
	for i := range m.regions {
		m.shared.Regions = append(m.shared.Regions, m.regions[i].held)
	}
	return m, nil
}

// close unmaps all regions except those that keep has, too.
func (m *memory) close(keep *memory) error {
	var errs []error
	for i := range m.regions {
		r := &m.regions[i]
		if keep != nil && slices.ContainsFunc(keep.regions, func(k region) bool {
			return k.held == r.held
		}) {
			continue
		}
		errs = append(errs, r.unmap())
	}
	return errors.Join(errs...)
}

// at returns n bytes of memory at a guest address, or fewer at the end of a region, or none if there
// is no memory. hint is the index of the region of the caller's last call.
//
// borrowed: what it returns, as long as the memory is not unmapped.
func (m *memory) at(addr uint64, n uint32, hint *int) []byte {
	if *hint < len(m.regions) {
		r := &m.regions[*hint]
		if off := addr - r.guest; off < r.size {
			return r.mem[off:min(off+uint64(n), r.size)]
		}
	}
	i, found := slices.BinarySearchFunc(m.regions, addr, func(r region, a uint64) int { return cmp.Compare(r.guest, a) })
	if !found {
		i--
	}
	if i < 0 {
		return nil
	}
	r := &m.regions[i]
	off := addr - r.guest
	if off >= r.size {
		return nil
	}
	*hint = i
	return r.mem[off:min(off+uint64(n), r.size)]
}

// byUser returns n bytes at an address of the front end's process. The address must be aligned.
func (m *memory) byUser(addr, n, align uint64) (unsafe.Pointer, error) {
	for i := range m.regions {
		r := &m.regions[i]
		if off := addr - r.user; off < r.size {
			if r.size-off < n {
				return nil, fmt.Errorf("%w: a ring at %#x ends behind its region of memory", ErrFrontEnd, addr)
			}
			p := unsafe.Pointer(&r.mem[off])
			if uintptr(p)%uintptr(align) != 0 {
				return nil, fmt.Errorf("%w: a ring at %#x is not aligned to %d bytes", ErrFrontEnd, addr, align)
			}
			return p, nil
		}
	}
	return nil, fmt.Errorf("%w: a ring at %#x is in no region of memory", ErrFrontEnd, addr)
}

// holds reports whether all parts of a ring are in the memory.
func (m *memory) holds(a *vringAddr) bool {
	for _, addr := range []uint64{a.desc, a.driver, a.used} {
		if !slices.ContainsFunc(m.regions, func(r region) bool { return addr-r.user < r.size }) {
			return false
		}
	}
	return true
}

// has reports whether an address of this process is in a mapping of the memory.
func (m *memory) has(p uintptr) bool {
	for i := range m.regions {
		if b := m.regions[i].mapping; len(b) > 0 && p-uintptr(unsafe.Pointer(&b[0])) < uintptr(len(b)) {
			return true
		}
	}
	return false
}

// descriptor is a copy of a descriptor of a ring, or of an indirect table.
type descriptor struct {
	addr  uint64
	len   uint32
	extra uint32 // split: flags, next; packed: id, flags
}

const descriptorSize = 16

// indirect copies descriptor i of a table at a guest address. The descriptor may be in two adjacent
// regions.
func (m *memory) indirect(table uint64, i int, hint *int) (d descriptor, ok bool) {
	var b [descriptorSize]byte
	for have := 0; have < len(b); {
		p := m.at(table+uint64(i*descriptorSize+have), uint32(len(b)-have), hint)
		if len(p) == 0 {
			return d, false
		}
		have += copy(b[have:], p)
	}
	return descriptor{
		binary.LittleEndian.Uint64(b[:]), binary.LittleEndian.Uint32(b[8:]), binary.LittleEndian.Uint32(b[12:]),
	}, true
}

// regions returns the regions of a memory table, or the region of a message about one region.
func (m *message) regions() []region {
	b := m.body[8:]
	rs := make([]region, 0, len(b)/regionSize)
	for ; len(b) >= regionSize; b = b[regionSize:] {
		rs = append(rs, region{
			guest: binary.LittleEndian.Uint64(b), size: binary.LittleEndian.Uint64(b[8:]),
			user: binary.LittleEndian.Uint64(b[16:]), offset: binary.LittleEndian.Uint64(b[24:]),
		})
	}
	return rs
}
