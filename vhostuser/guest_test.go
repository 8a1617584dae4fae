package vhostuser

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/vnet"
)

// guest is the driver of one ring. It shares memory with the ring's device and has its own mapping
// of the memory, as another process would.
type guest struct {
	t     testing.TB
	fd    int
	mem   []byte
	v     *vring
	d     *Device
	feats features
	size  int

	base  uint64 // address of the memory's first byte
	from  int    // buffers are allocated from this offset to until
	until int
	free  int    // offset of the next buffer
	avail int    // chains, or descriptors of a packed ring, made available so far
	seen  int    // used chains, or used descriptors of a packed ring, taken back so far
	slots []int  // descriptors of a packed ring's chains, by id
	id    uint16 // id of the next chain
	last  uint16 // id of the last chain that was made available
	back  uint16 // id of the last chain that was taken back
}

const (
	guestBase = 0x100000 // address of the memory's first byte
	guestUser = 0x7000000
	guestSize = 16 << 20
	availAt   = 0x40000
	usedAt    = 0x60000
	tablesAt  = 0x100000
	tableSize = 0x800
	buffersAt = 0x200000
	ringSize  = 64
)

// newMemoryOf makes a driver with its memory from address base on, and without a device.
func newMemoryOf(t testing.TB, feats features, number int, base uint64) *guest {
	t.Helper()
	fd, err := unix.MemfdCreate("guest", unix.MFD_CLOEXEC)
	if err == nil {
		err = unix.Ftruncate(fd, guestSize)
	}
	if err != nil {
		t.Fatal(err)
	}
	g := &guest{
		t: t, fd: fd, feats: feats, size: ringSize, slots: make([]int, 1<<16),
		base: base, from: buffersAt, until: guestSize, free: buffersAt, v: &vring{number: number},
	}
	if g.mem, err = unix.Mmap(fd, 0, guestSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = unix.Munmap(g.mem)
		unix.Close(fd)
	})
	return g
}

// newGuest makes a driver and a running ring. The memory is divided into this number of regions.
func newGuest(t testing.TB, feats features, number, regions int) *guest {
	t.Helper()
	g := newMemoryOf(t, feats, number, guestBase)
	var rs []region
	for i := range uint64(regions) {
		// The first region has the rings. Regions have their edges in the middle of buffers and
		// pages.
		from, to := uint64(0), uint64(guestSize)
		if edge := uint64(buffersAt) + 1000; regions > 1 {
			if i > 0 {
				from = edge + (i-1)*777
			}
			if i < uint64(regions)-1 {
				to = edge + i*777
			}
		}
		r := region{guest: guestBase + from, size: to - from, user: guestUser + from, offset: from}
		if err := r.mapRegion(g.fd); err != nil {
			t.Fatal(err)
		}
		rs = append(rs, r)
	}
	m, err := newMemory(rs)
	if err != nil {
		t.Fatal(err)
	}
	g.d = &Device{shared: shared{failed: make(chan error, 1), lendFrom: lentFrom}, lender: newLender()}
	g.d.granted.Store(uint32(vnet.AllOffloads))
	g.v = &vring{
		number: number, shared: &g.d.shared, size: ringSize, kick: 0, call: -1, start: 1 << 15,
		addr: &vringAddr{desc: guestUser, driver: guestUser + availAt, used: guestUser + usedAt},
	}
	if err := g.v.begin(m, feats); err != nil {
		t.Fatal(err)
	}
	g.v.running.Store(true)
	t.Cleanup(func() { _ = m.close(nil) })
	return g
}

// ended returns the error for which the device has ended the ring, or nil.
func (g *guest) ended() error {
	select {
	case err := <-g.d.failed:
		return err
	default:
		return nil
	}
}

func (g *guest) put16(at int, v uint16) { binary.LittleEndian.PutUint16(g.mem[at:], v) }

func (g *guest) descriptor(at int, b buffer, low, high uint16) {
	binary.LittleEndian.PutUint64(g.mem[at:], b.addr)
	binary.LittleEndian.PutUint32(g.mem[at+8:], b.len)
	g.put16(at+12, low)
	g.put16(at+14, high)
}

// at returns the memory of a buffer.
func (g *guest) at(b buffer) []byte { return g.mem[b.addr-g.base:][:b.len] }

// alloc returns an unused buffer.
func (g *guest) alloc(n int) buffer {
	if g.free+n > g.until {
		g.free = g.from
	}
	b := buffer{g.base + uint64(g.free), uint32(n)}
	g.free += n
	return b
}

// add makes a chain of buffers available, as an indirect table if indirect is set.
func (g *guest) add(bufs []buffer, indirect bool) {
	flags := uint16(0)
	if !g.v.transmits() {
		flags = descWrite
	}
	if indirect {
		at := tablesAt + g.avail%ringSize*tableSize
		for i, b := range bufs {
			next := flags
			if i < len(bufs)-1 {
				next |= descNext
			}
			if g.feats.has(featPacked) {
				g.descriptor(at+16*i, b, 0, flags)
			} else {
				g.descriptor(at+16*i, b, next, uint16(i+1))
			}
		}
		bufs, flags = []buffer{{g.base + uint64(at), uint32(16 * len(bufs))}}, descIndirect
	}
	if g.feats.has(featPacked) {
		g.addPacked(bufs, flags)
		return
	}
	// Descriptors are used in turn; no test has more chains than fit.
	head := uint16(g.free16(len(bufs)))
	g.last = head
	for i, b := range bufs {
		low, at := flags, (int(head)+i)%g.size
		if i < len(bufs)-1 {
			low |= descNext
		}
		g.descriptor(16*at, b, low, uint16((at+1)%g.size))
	}
	g.put16(availAt+4+2*(g.avail%g.size), head)
	g.avail++
	store32At(g, availAt, uint32(g.avail)<<16)
}

// free16 allocates n descriptors of a split ring, and returns the first one.
func (g *guest) free16(n int) int {
	at := int(g.id)
	g.id = uint16((at + n) % g.size)
	return at
}

// store32At stores v atomically, as a driver does.
func store32At(g *guest, at int, v uint32) { store32(ptr(g.mem[at:]), v) }

func (g *guest) addPacked(bufs []buffer, flags uint16) {
	first := g.avail
	for i, b := range bufs {
		at := g.avail
		high := flags | wrapFlags(at/g.size)
		if i < len(bufs)-1 {
			high |= descNext
		}
		if i == 0 {
			high ^= descAvail | descUsed // made available below
		}
		g.descriptor(16*(at%g.size), b, g.id, high)
		g.avail++
	}
	g.slots[g.id], g.last = len(bufs), g.id
	word := flags | wrapFlags(first/g.size)
	if len(bufs) > 1 {
		word |= descNext
	}
	store32At(g, 16*(first%g.size)+12, uint32(g.id)|uint32(word)<<16)
	g.id++
}

// wrapFlags returns the flags of an available descriptor in this round of a packed ring.
func wrapFlags(round int) uint16 {
	if round%2 == 0 {
		return descAvail
	}
	return descUsed
}

// used takes the next used chain from the ring, if there is one. n is its number of written bytes.
func (g *guest) used() (n int, ok bool) {
	if g.feats.has(featPacked) {
		at := 16 * (g.seen % g.size)
		word := load32(ptr(g.mem[at+12:]))
		want := uint16(descAvail | descUsed)
		if g.seen/g.size%2 == 1 {
			want = 0
		}
		if uint16(word>>16)&(descAvail|descUsed) != want {
			return 0, false
		}
		g.seen += g.slots[uint16(word)]
		g.back = uint16(word)
		return int(binary.LittleEndian.Uint32(g.mem[at+8:])), true
	}
	if uint16(g.seen) == load16(ptr(g.mem[usedAt+2:])) {
		return 0, false
	}
	e := usedAt + 4 + 8*(g.seen%g.size)
	g.seen++
	g.back = uint16(binary.LittleEndian.Uint32(g.mem[e:]))
	return int(binary.LittleEndian.Uint32(g.mem[e+4:])), true
}

// pieces allocates n bytes as at most most buffers of random lengths.
func (g *guest) pieces(r *rand.Rand, n, most int) (bufs []buffer) {
	for n > 0 {
		k := n
		if len(bufs) < most-1 {
			k = 1 + r.IntN(n)
		}
		bufs = append(bufs, g.alloc(k))
		n -= k
	}
	return bufs
}

// wantsKick reports whether the device asks for a kick for the chains that were made available
// since avail had the value old.
func (g *guest) wantsKick(old int) bool {
	if g.feats.has(featPacked) {
		event := load32(ptr(g.mem[usedAt:]))
		switch event >> 16 & 3 {
		case eventDisable:
			return false
		case eventDesc:
			at := uint16(event) & 0x7fff
			if (event>>15&1 == 1) != (g.avail/g.size%2 == 0) {
				at -= uint16(g.size)
			}
			return uint16(g.avail%g.size)-at-1 < uint16(g.avail-old)
		}
		return true
	}
	if g.feats.has(featEventIdx) {
		event := load16(ptr(g.mem[usedAt+4+8*g.size:]))
		return uint16(g.avail)-event-1 < uint16(g.avail-old)
	}
	return load32(ptr(g.mem[usedAt:]))&noNotify == 0
}
