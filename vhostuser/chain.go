package vhostuser

import (
	"errors"
	"fmt"
)

// buffer is a part of the guest's memory, as one descriptor has it.
type buffer struct {
	addr uint64
	len  uint32
}

// chain is a frame's buffers, in order.
type chain struct {
	id    uint16   // by which the driver knows it
	slots uint16   // how many descriptors of a packed ring it takes
	bufs  []buffer // of the ring's own
	size  uint64   // bytes in all
}

// used is a chain that is given back, with so many bytes written.
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

// ring is one of the two kinds. What next returns is taken back by rewind, or given back
// by a publish that follows its put.
type ring interface {
	base() *common
	// next takes the next chain that the driver has made available, if there is one.
	next() (there bool, err error)
	mark()
	rewind()
	// put notes that a chain, in the order of next, is to be given back.
	put(u used)
	// publish gives back what was put, and reports whether the driver wants a call.
	publish() (call bool)
	// arm says whether the driver is to kick when there is more than next has seen.
	arm(on bool)
	// armed reports whether next has seen no more since, which there would be no kick for.
	armed() bool
	// position is for VHOST_USER_GET_VRING_BASE.
	position() uint32
}

// common is what both kinds have.
type common struct {
	mem      *memory
	size     uint32 // descriptors
	feats    features
	writable bool // chains are to be written: the driver receives by them
	chain    chain
	pending  []used
	marked   int // of pending
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

// table checks the place of an indirect table, and returns how many descriptors it has.
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

// indirect copies descriptor i of a table.
func (r *common) indirect(d *descriptor, i int) (descriptor, error) {
	e, ok := r.mem.indirect(d.addr, i, &r.hint)
	if !ok {
		return e, fmt.Errorf("%w: an indirect table at %#x, where there is no memory", ErrRing, d.addr)
	}
	return e, nil
}

// errAddress is for a buffer that is nowhere.
func errAddress(b buffer) error {
	return fmt.Errorf("%w: a buffer of %d bytes at %#x, where there is no memory", ErrRing, b.len, b.addr)
}

// load copies the chain's bytes, from skip on, to dst, as many as there is room for.
func (r *common) load(dst []byte, skip int) (n int, err error) {
	for _, b := range r.chain.bufs {
		if skip >= int(b.len) {
			skip -= int(b.len)
			continue
		}
		b.addr += uint64(skip)
		b.len -= uint32(skip)
		skip = 0
		for b.len > 0 && n < len(dst) {
			p := r.mem.at(b.addr, b.len, &r.hint)
			if len(p) == 0 {
				return n, errAddress(b)
			}
			k := copy(dst[n:], p)
			n += k
			b.addr += uint64(k)
			b.len -= uint32(k)
		}
		if n == len(dst) {
			break
		}
	}
	return n, nil
}

// store copies src to the chain's memory from byte skip on, as much as there is room for.
func (r *common) store(src []byte, skip int) (n int, err error) {
	for _, b := range r.chain.bufs {
		if skip >= int(b.len) {
			skip -= int(b.len)
			continue
		}
		b.addr += uint64(skip)
		b.len -= uint32(skip)
		skip = 0
		for b.len > 0 && n < len(src) {
			p := r.mem.at(b.addr, b.len, &r.hint)
			if len(p) == 0 {
				return n, errAddress(b)
			}
			k := copy(p, src[n:])
			n += k
			b.addr += uint64(k)
			b.len -= uint32(k)
		}
		if n == len(src) {
			break
		}
	}
	return n, nil
}

// ErrRing is wrapped by errors about what a driver has put into a ring and may not.
var ErrRing = errors.New("the driver breaks the rules of a ring")
