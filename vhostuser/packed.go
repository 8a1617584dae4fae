package vhostuser

import (
	"cmp"
	"fmt"
	"unsafe"
)

// packed is a packed ring: descriptors that are available become used in the same place
// (virtio 1.2, section 2.8).
type packed struct {
	common
	desc, driver, device unsafe.Pointer

	at    cursor // of the descriptor to be taken next
	done  cursor // of the one to be given back next
	taken uint32 // descriptors that were taken and not given back
	end   cursor // where there was none available when it was looked for last
	event cursor // end, when the driver was told to kick

	markAt    cursor
	markTaken uint32
}

// cursor is a place in a packed ring. Each round has the other meaning of the flags.
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

// bits are the flags of a descriptor that is given back in this round.
func (c *cursor) bits() uint16 {
	if c.wrap {
		return descAvail | descUsed
	}
	return 0
}

// available reports whether a descriptor with these flags is.
func (c *cursor) available(flags uint16) bool {
	return (flags&descAvail != 0) == c.wrap && (flags&descUsed != 0) != c.wrap
}

// word is the cursor as messages and the suppression of events have it.
func (c *cursor) word() uint16 {
	w := c.index
	if c.wrap {
		w |= 1 << 15
	}
	return w
}

func cursorOf(w uint16) cursor { return cursor{w & 0x7fff, w>>15 != 0} }

// What an event suppression says.
const (
	eventEnable  = 0
	eventDisable = 1
	eventDesc    = 2 // from one descriptor on
)

func newPacked(c common, a *vringAddr, start uint32) (*packed, error) {
	// The upper half is about descriptors that were given back. Some front ends leave it out,
	// and all that were taken here have been given back.
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
	// The flags come with everything that was stored before them.
	if flags := uint16(load32(unsafe.Add(p, 12)) >> 16); !r.at.available(flags) || r.taken >= r.size {
		// With all taken and none given back the flags are those of the round before.
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

// walk takes the chain in an indirect table, which is all of that.
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
		if !r.writable { // DPDK's driver marks the header of a frame that it transmits
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
		// The flags of the first one come last: with them, all of them are there.
		if i == 0 {
			first = word
		} else {
			store32(unsafe.Add(p, 12), word)
		}
		r.done.advance(u.slots, r.size)
		n += uint32(u.slots)
	}
	r.pending = r.pending[:0]
	r.taken -= min(n, r.taken) // what is lent comes later
	store32(unsafe.Add(r.place(old.index), 12), first)
	r.barrier()
	return r.wantsCall(n)
}

// wantsCall reports whether the driver wants to be told of the last n descriptors.
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
