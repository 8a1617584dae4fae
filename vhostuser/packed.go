package vhostuser

import (
	"cmp"
	"fmt"
	"unsafe"
)

// packed is a packed ring: available descriptors become used descriptors in the same place (virtio
// 1.2, section 2.8).
type packed struct {
	common
	desc, driver, device unsafe.Pointer

	at    cursor // next descriptor to take
	done  cursor // next descriptor to return
	taken uint32 // number of descriptors taken and not returned
	end   cursor // position at which next has found no descriptor
	event cursor // end at the time of arm

	markAt    cursor
	markTaken uint32
}

// cursor is a position in a packed ring. The meaning of the flags alternates with each round.
type cursor struct {
	index uint16
	wrap  bool
}

func (c *cursor) advance(n uint16, size uint32) {
	if next := uint32(c.index) + uint32(n); next >= size {
		c.index, c.wrap = uint16(next-size), !c.wrap
	} else {
		c.index = uint16(next)
	}
}

// bits returns the flags of a descriptor that is returned in this round.
func (c *cursor) bits() uint16 {
	if c.wrap {
		return descAvail | descUsed
	}
	return 0
}

// available reports whether a descriptor with these flags is available in this round.
func (c *cursor) available(flags uint16) bool {
	return (flags&descAvail != 0) == c.wrap && (flags&descUsed != 0) != c.wrap
}

// word returns the cursor in the format of messages and of event suppression.
func (c *cursor) word() uint16 {
	w := c.index
	if c.wrap {
		w |= 1 << 15
	}
	return w
}

func cursorOf(w uint16) cursor { return cursor{w & 0x7fff, w>>15 != 0} }

// Values of an event suppression structure.
const (
	eventEnable  = 0
	eventDisable = 1
	eventDesc    = 2 // from one descriptor on
)

func newPacked(c common, a *vringAddr, start uint32) (ring, error) {
	// The upper half is the position of returned descriptors. It is not needed, because all
	// descriptors were returned, and some front ends leave it out.
	r := &packed{common: c, at: cursorOf(uint16(start))}
	r.done, r.end = r.at, r.at
	if uint32(r.at.index) >= c.size {
		return nil, fmt.Errorf("%w: a packed ring of %d descriptors begins at %#x", ErrFrontEnd, c.size, start)
	}
	var err [3]error
	r.desc, err[0] = c.mem.byUser(a.desc, uint64(c.size)*descriptorSize, 16)
	r.driver, err[1] = c.mem.byUser(a.driver, 4, 4)
	r.device, err[2] = c.mem.byUser(a.used, 4, 4)
	return r, cmp.Or(err[:]...)
}

func (r *packed) mark() { r.markAt, r.markTaken, r.marked = r.at, r.taken, len(r.pending) }

func (r *packed) rewind() { r.at, r.taken, r.pending = r.markAt, r.markTaken, r.pending[:r.marked] }

func (r *packed) position() uint32 { return uint32(r.at.word()) | uint32(r.done.word())<<16 }

func (r *packed) place(index uint16) unsafe.Pointer {
	return unsafe.Add(r.desc, descriptorSize*uint32(index))
}

func (r *packed) next() (bool, error) {
	p := r.place(r.at.index)
	// After the load of the flags, everything stored before them is visible.
	if flags := uint16(load32(unsafe.Add(p, 12)) >> 16); !r.at.available(flags) || r.taken >= r.size {
		// If all descriptors are taken and none is returned, the flags are of the round before.
		r.end = r.at
		return false, nil
	}
	r.begin()
	for i := r.at; ; {
		d := loadDescriptor(p)
		flags := uint16(d.extra >> 16)
		if flags&descIndirect != 0 {
			if r.chain.slots > 0 {
				return false, fmt.Errorf("%w: an indirect descriptor within a chain", ErrRing)
			}
			r.chain.id, r.chain.slots = uint16(d.extra), 1
			r.at.advance(1, r.size)
			r.taken++
			return true, r.walk(&d, flags)
		}
		if err := r.add(&d, flags); err != nil {
			return false, err
		}
		i.advance(1, r.size)
		r.chain.slots++
		if flags&descNext == 0 {
			r.chain.id = uint16(d.extra)
			r.at = i
			r.taken += uint32(r.chain.slots)
			return true, nil
		}
		p = r.place(i.index)
	}
}

// walk adds the descriptors of an indirect table. The whole table is the chain.
func (r *packed) walk(table *descriptor, flags uint16) error {
	n, err := r.table(table, flags)
	if err != nil {
		return err
	}
	for i := range n {
		d, err := r.indirect(table, i)
		if err != nil {
			return err
		}
		flags := uint16(d.extra >> 16)
		if !r.writable { // the DPDK driver sets the flag for the header of a transmitted frame
			flags &^= descWrite
		}
		if err := r.add(&d, flags); err != nil {
			return err
		}
	}
	return nil
}

func (r *packed) publish() (call bool) {
	if len(r.pending) == 0 {
		return false
	}
	old, first := r.done, uint32(0)
	n := uint32(0)
	for i, u := range r.pending {
		p := r.place(r.done.index)
		*(*uint32)(unsafe.Add(p, 8)) = u.len
		word := uint32(u.id) | uint32(r.done.bits())<<16
		if r.writable {
			word |= descWrite << 16
		}
		// The flags of the first descriptor are stored last, and make all descriptors visible.
		if i == 0 {
			first = word
		} else {
			store32(unsafe.Add(p, 12), word)
		}
		r.done.advance(u.slots, r.size)
		n += uint32(u.slots)
	}
	r.pending = r.pending[:0]
	r.taken -= min(n, r.taken) // lent chains are returned later
	store32(unsafe.Add(r.place(old.index), 12), first)
	r.barrier()
	return r.wantsCall(n)
}

// wantsCall reports whether the driver wants a call for the last n descriptors.
func (r *packed) wantsCall(n uint32) bool {
	event := load32(r.driver)
	switch event >> 16 & 3 {
	case eventDisable:
		return false
	case eventDesc:
		if !r.feats.has(featEventIdx) {
			return true
		}
		c := cursorOf(uint16(event))
		at, now := c.index, r.done.index
		if c.wrap != r.done.wrap {
			at -= uint16(r.size)
		}
		return now-at-1 < uint16(n)
	default:
		return true
	}
}

func (r *packed) arm(on bool) {
	word := uint32(eventDisable) << 16
	switch {
	case on && r.feats.has(featEventIdx):
		word = eventDesc<<16 | uint32(r.end.word())
		r.event = r.end
	case on:
		word = eventEnable << 16
	}
	store32(r.device, word)
	if on {
		r.barrier()
	}
}

func (r *packed) armed() bool { return !r.feats.has(featEventIdx) || r.event == r.end }
