package protocol

import (
	"encoding/binary"
	"slices"
)

// NameOnce returns a list with the same elements, in which consecutive fragments of a unit share its
// identifier, and those of the unit local, which is going to send the list, need none.
func NameOnce(elements []ListElement, local Platform) []ListElement {
	named := slices.Clone(elements)
	last, of := -1, local // the last fragment, and the identifier for the next one without its own
	for i := range named {
		e := &named[i]
		if e.Data != nil {
			continue
		}
		// A second fragment of a unit pays for an identifier of its own.
		if before := last; before >= 0 && e.Platform != of && named[before].Platform == e.Platform {
			named[before].Naming, of = NamedOnce, e.Platform
		}
		e.Naming = NamedHere
		if e.Platform == of {
			e.Naming = NamedBefore
		}
		last = i
	}
	return named
}

// AppendListSequence appends one sequence: attributes, chain pointers, and elements. The attributes
// are nil except in the first sequence. Besides the attributes there must be a chain pointer or an
// element.
func AppendListSequence(dst []byte, a *ListAttributes, chains []Fragment, elements []ListElement) []byte {
	last := len(dst) // offset of the last element
	if a != nil {
		dst = appendWord(dst, listAttributes, ListAttributesSize)
		dst = binary.BigEndian.AppendUint16(dst, a.AddressBits)
		dst = binary.BigEndian.AppendUint16(dst, a.PageShift)
		dst = binary.BigEndian.AppendUint32(dst, a.Elements)
		dst = binary.BigEndian.AppendUint32(dst, a.Buffers)
		dst = binary.BigEndian.AppendUint64(dst, a.Bytes)
	}
	for _, chain := range chains {
		last = len(dst)
		dst = appendFragment(dst, listChain, chain)
	}
	for i := range elements {
		e := &elements[i]
		last = len(dst)
		switch {
		case e.Data == nil && e.Naming == NamedHere:
			dst = appendFragment(dst, listFragment, e.Fragment)
		case e.Data == nil:
			if e.Naming == NamedOnce {
				dst = appendWord(dst, listPlatform, ListPlatformSize)
				dst = binary.BigEndian.AppendUint64(dst, uint64(e.Platform))
				last = len(dst)
			}
			dst = appendWord(dst, listShort, ListShortSize)
			dst = binary.BigEndian.AppendUint32(dst, e.Handle)
			dst = binary.BigEndian.AppendUint64(dst, e.Addr)
			dst = binary.BigEndian.AppendUint32(dst, e.Len)
		default:
			dst = appendWord(dst, listImmediate, uint32(e.size()))
			dst = binary.BigEndian.AppendUint32(dst, uint32(len(e.Data)))
			dst = append(dst, e.Data...)
			dst = append(dst, make([]byte, -len(e.Data)&3)...)
		}
		if e.EndOfBuffer {
			dst[last] |= listEndOfBuffer >> 24
		}
	}
	dst[last] |= listLast >> 24
	return dst
}

// size returns the size of the element on the wire in bytes.
func (e *ListElement) size() int {
	switch {
	case e.Data != nil:
		return listImmediateSize + (len(e.Data)+3)&^3
	case e.Naming == NamedHere:
		return ListFragmentSize
	case e.Naming == NamedOnce:
		return ListPlatformSize + ListShortSize
	}
	return ListShortSize
}

// ListFits returns how many of the elements, from the first on, fit that many bytes.
func ListFits(elements []ListElement, room int) int {
	for i := range elements {
		if room -= elements[i].size(); room < 0 {
			return i
		}
	}
	return len(elements)
}

func appendWord(dst []byte, kind, size uint32) []byte {
	return binary.BigEndian.AppendUint32(dst, kind<<listTypeShift|size)
}

func appendFragment(dst []byte, kind uint32, f Fragment) []byte {
	dst = appendWord(dst, kind, ListFragmentSize)
	dst = binary.BigEndian.AppendUint32(dst, f.Handle)
	dst = binary.BigEndian.AppendUint64(dst, uint64(f.Platform))
	dst = binary.BigEndian.AppendUint64(dst, f.Addr)
	return binary.BigEndian.AppendUint32(dst, f.Len)
}
