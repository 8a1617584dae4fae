package vhostuser

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"
)

// buffer is a part of the guest's memory that a descriptor describes.
type buffer struct {
	addr uint64
	len  uint32
}

// chain has the buffers of a frame, in order.
type chain struct {
	id    uint16   // identifier of the chain for the driver
	slots uint16   // number of descriptors in a packed ring
	bufs  []buffer // memory of the ring
	size  uint64   // bytes in all
}

// used is a chain that is returned to the driver, with the number of bytes written.
type used struct {
	id, slots uint16
	len       uint32
}

// Flags of a descriptor.
const (
	descNext     = 1
	descWrite    = 2
	descIndirect = 4
	descAvail    = 1 << 7
	descUsed     = 1 << 15
)

// ring is a split or a packed ring. rewind undoes calls of next since mark. publish returns the
// chains of put to the driver.
type ring interface {
	base() *common
	// next takes the next chain that the driver has made available, if there is one.
	next() (there bool, err error)
	mark()
	rewind()
	// put records a chain to return to the driver, in the order of next.
	put(u used)
	// publish returns the recorded chains to the driver, and reports whether the driver wants
	// a call.
	publish() (call bool)
	// arm tells the driver whether to kick when it makes more chains available than next has
	// seen.
	arm(on bool)
	// armed reports whether next has seen no more chains since arm. Otherwise there may be no
	// kick.
	armed() bool
	// position returns the number for VHOST_USER_GET_VRING_BASE.
	position() uint32
}

// common is the state that both kinds of rings have.
type common struct {
	mem      *memory
	size     uint32 // descriptors
	feats    features
	writable bool // the driver receives by the ring, so chains are writable
	chain    chain
	pending  []used
	marked   int // length of pending at mark
	hint     int
	fence    uint32
}

func newCommon(m *memory, size uint32, f features, writable bool) common {
	return common{
		mem: m, size: size, feats: f, writable: writable,
		chain: chain{bufs: make([]buffer, 0, size)}, pending: make([]used, 0, size),
	}
}

func (r *common) base() *common { return r }

func (r *common) put(u used) { r.pending = append(r.pending, u) }

// begin begins a chain.
func (r *common) begin() { r.chain = chain{bufs: r.chain.bufs[:0]} }

// add adds the buffer of a descriptor to the chain.
func (r *common) add(d *descriptor, flags uint16) error {
	switch {
	case len(r.chain.bufs) == int(r.size):
		return fmt.Errorf("%w: a chain of more than %d descriptors", ErrRing, r.size)
	case (flags&descWrite != 0) != r.writable:
		return fmt.Errorf("%w: a buffer that is to be written where it is to be read, or the other way round", ErrRing)
	}
	r.chain.bufs = append(r.chain.bufs, buffer{d.addr, d.len})
	r.chain.size += uint64(d.len)
	return nil
}

// table checks the descriptor of an indirect table, and returns the number of descriptors in it.
func (r *common) table(d *descriptor, flags uint16) (int, error) {
	n := d.len / descriptorSize
	switch {
	case !r.feats.has(featIndirect):
		return 0, fmt.Errorf("%w: an indirect descriptor, which was not negotiated", ErrRing)
	case flags&descNext != 0:
		return 0, fmt.Errorf("%w: an indirect descriptor within a chain", ErrRing)
	case d.len%descriptorSize != 0 || n == 0 || n > r.size:
		return 0, fmt.Errorf("%w: an indirect table of %d bytes", ErrRing, d.len)
	}
	return int(n), nil
}

// indirect copies descriptor i of an indirect table.
func (r *common) indirect(d *descriptor, i int) (descriptor, error) {
	e, ok := r.mem.indirect(d.addr, i, &r.hint)
	if !ok {
		return e, fmt.Errorf("%w: an indirect table at %#x, where there is no memory", ErrRing, d.addr)
	}
	return e, nil
}

// errAddress returns the error for a buffer outside of the memory.
func errAddress(b buffer) error {
	return fmt.Errorf("%w: a buffer of %d bytes at %#x, where there is no memory", ErrRing, b.len, b.addr)
}

// each passes the memory of the chain's bytes, from skip on, to fn, piece by piece, until fn returns
// false.
func (r *common) each(skip int, fn func(p []byte) (more bool)) error {
	for _, b := range r.chain.bufs {
		if skip >= int(b.len) {
			skip -= int(b.len)
			continue
		}
		b.addr += uint64(skip)
		b.len -= uint32(skip)
		skip = 0
		for b.len > 0 {
			p := r.mem.at(b.addr, b.len, &r.hint)
			if len(p) == 0 {
				return errAddress(b)
			}
			if !fn(p) {
				return nil
			}
			b.addr += uint64(len(p))
			b.len -= uint32(len(p))
		}
	}
	return nil
}

// load copies the bytes of the chain, from skip on, to dst, up to the length of dst.
func (r *common) load(dst []byte, skip int) (n int, err error) {
	if len(dst) == 0 {
		return 0, nil
	}
	err = r.each(skip, func(p []byte) bool {
		n += copy(dst[n:], p)
		return n < len(dst)
	})
	return n, err
}

// store copies src to the memory of the chain, from byte skip on, up to the end of the chain.
func (r *common) store(src []byte, skip int) (n int, err error) {
	if len(src) == 0 {
		return 0, nil
	}
	err = r.each(skip, func(p []byte) bool {
		n += copy(p, src[n:])
		return n < len(src)
	})
	return n, err
}

// ErrRing is wrapped by errors about an invalid ring of a driver.
var ErrRing = errors.New("the driver breaks the rules of a ring")

// load16 loads a number that the front end stores. Everything that the front end has stored before is
// visible then. Package atomic has no 16-bit load, so load16 loads the word with the number, which is
// in the same page.
func load16(p unsafe.Pointer) uint16 {
	half := uintptr(p) & 2
	return uint16(atomic.LoadUint32((*uint32)(unsafe.Add(p, -int(half)))) >> (8 * half))
}

func load32(p unsafe.Pointer) uint32 { return atomic.LoadUint32((*uint32)(p)) }

// store32 stores a number after all earlier stores.
func store32(p unsafe.Pointer, v uint32) { atomic.StoreUint32((*uint32)(p), v) }

// loadDescriptor copies a descriptor of a ring.
func loadDescriptor(p unsafe.Pointer) descriptor {
	return descriptor{*(*uint64)(p), *(*uint32)(unsafe.Add(p, 8)), *(*uint32)(unsafe.Add(p, 12))}
}

// barrier is a full memory barrier: later loads do not precede earlier stores.
func (r *common) barrier() { atomic.AddUint32(&r.fence, 1) }
