package vhostuser

import (
	"cmp"
	"fmt"
	"unsafe"
)

// split is a split ring: a table of descriptors, an available ring and a used ring (virtio 1.2, section
// 2.7).
type split struct {
	common
	desc, avail, used unsafe.Pointer

	take     uint16 // index into avail of the next chain to take
	seen     uint16 // index of avail that was loaded last
	done     uint16 // index into used of the next chain to return
	markNext uint16
	event    uint16 // seen at the time of arm
	quiet    bool   // the driver need not kick
}

// Sizes in bytes of the headers and elements of rings, and flags.
const (
	ringHead      = 4
	availElement  = 2
	usedElement   = 8
	noInterrupt   = 1 // a flag of avail
	noNotify      = 1 // a flag of used
	ringEventSize = 2
)

func newSplit(c common, a *vringAddr) (ring, error) {
	if c.size&(c.size-1) != 0 {
		return nil, fmt.Errorf("%w: a split ring of %d descriptors, which is no power of two", ErrFrontEnd, c.size)
	}
	r := &split{common: c, quiet: true}
	var err [3]error
	n := uint64(c.size)
	r.desc, err[0] = c.mem.byUser(a.desc, n*descriptorSize, 16)
	r.avail, err[1] = c.mem.byUser(a.driver, ringHead+n*availElement, 2)
	r.used, err[2] = c.mem.byUser(a.used, ringHead+n*usedElement, 4)
	if e := cmp.Or(err[:]...); e != nil {
		return nil, e
	}
	if c.feats.has(featEventIdx) { // a number behind each ring
		_, err[0] = c.mem.byUser(a.driver, ringHead+n*availElement+ringEventSize, 2)
		_, err[1] = c.mem.byUser(a.used, ringHead+n*usedElement+ringEventSize, 4)
		if e := cmp.Or(err[:]...); e != nil {
			return nil, e
		}
	}
	// The ring continues behind the last returned chain. If another process has used the ring
	// before, chains that it had taken and not returned are taken again.
	r.done = load16(unsafe.Add(r.used, 2))
	r.take, r.seen = r.done, r.done
	return r, nil
}

func (r *split) mark() { r.markNext, r.marked = r.take, len(r.pending) }

func (r *split) rewind() { r.take, r.pending = r.markNext, r.pending[:r.marked] }

func (r *split) position() uint32 { return uint32(r.take) }

func (r *split) next() (bool, error) {
	if r.seen == r.take {
		r.seen = load16(unsafe.Add(r.avail, 2))
		if n := r.seen - r.take; uint32(n) > r.size {
			return false, fmt.Errorf("%w: %d chains are available in a ring of %d", ErrRing, n, r.size)
		}
		if r.seen == r.take {
			return false, nil
		}
	}
	head := *(*uint16)(unsafe.Add(r.avail, ringHead+availElement*(uint32(r.take)&(r.size-1))))
	r.take++
	r.begin()
	r.chain.id, r.chain.slots = head, 1
	for i := head; ; {
		if uint32(i) >= r.size {
			return false, fmt.Errorf("%w: descriptor %d of a ring of %d", ErrRing, i, r.size)
		}
		d := loadDescriptor(unsafe.Add(r.desc, descriptorSize*uint32(i)))
		flags := uint16(d.extra)
		if flags&descIndirect != 0 {
			if len(r.chain.bufs) > 0 {
				return false, fmt.Errorf("%w: an indirect descriptor within a chain", ErrRing)
			}
			return true, r.walk(&d, flags)
		}
		if err := r.add(&d, flags); err != nil {
			return false, err
		}
		if flags&descNext == 0 {
			return true, nil
		}
		i = uint16(d.extra >> 16)
	}
}

// walk adds the descriptors of the chain in an indirect table.
func (r *split) walk(table *descriptor, flags uint16) error {
	n, err := r.table(table, flags)
	if err != nil {
		return err
	}
	for i := 0; ; {
		if i >= n {
			return fmt.Errorf("%w: descriptor %d of an indirect table of %d", ErrRing, i, n)
		}
		d, err := r.indirect(table, i)
		if err != nil {
			return err
		}
		flags := uint16(d.extra)
		if flags&descIndirect != 0 {
			return fmt.Errorf("%w: an indirect table in another", ErrRing)
		}
		if err := r.add(&d, flags); err != nil {
			return err
		}
		if flags&descNext == 0 {
			return nil
		}
		i = int(d.extra >> 16)
	}
}

func (r *split) publish() (call bool) {
	if len(r.pending) == 0 {
		return false
	}
	old := r.done
	for _, u := range r.pending {
		e := unsafe.Add(r.used, ringHead+usedElement*(uint32(r.done)&(r.size-1)))
		*(*uint32)(e) = uint32(u.id)
		*(*uint32)(unsafe.Add(e, 4)) = u.len
		r.done++
	}
	r.pending = r.pending[:0]
	r.storeUsed()
	r.barrier()
	if r.feats.has(featEventIdx) {
		event := load16(unsafe.Add(r.avail, ringHead+availElement*r.size))
		return r.done-event-1 < r.done-old
	}
	return load16(r.avail)&noInterrupt == 0
}

// storeUsed stores the used index, and whether the driver has to kick.
func (r *split) storeUsed() {
	word := uint32(r.done) << 16
	if r.quiet && !r.feats.has(featEventIdx) {
		word |= noNotify
	}
	store32(r.used, word)
}

func (r *split) arm(on bool) {
	if r.feats.has(featEventIdx) {
		if on {
			*(*uint16)(unsafe.Add(r.used, ringHead+usedElement*r.size)) = r.seen
			r.event = r.seen
		}
	} else if r.quiet == on {
		r.quiet = !on
		r.storeUsed()
	}
	if on {
		r.barrier()
	}
}

func (r *split) armed() bool { return !r.feats.has(featEventIdx) || r.event == r.seen }
