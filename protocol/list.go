package protocol

import (
	"encoding/binary"
	"fmt"
	"iter"
	"math"
)

// Limits of a scatter-gather list.
const (
	// MaxListElements is the largest number of fragments and immediate elements of a list, in
	// all of its sequences.
	MaxListElements = 1024
	// MaxListSequences is the largest number of sequences of a list: the one in the message, and
	// those that chain pointers refer to.
	MaxListSequences = 16
	// MaxListSequence is the size of the largest sequence in bytes.
	MaxListSequence = 4096
	// MaxListImmediate is the largest number of bytes of data in one element.
	MaxListImmediate = 1024

	// ListAttributesSize and ListFragmentSize are the sizes of these elements in bytes. A chain
	// pointer has the size of a fragment.
	ListAttributesSize = 24
	ListFragmentSize   = 28
	// ListPlatformSize and ListShortSize are the sizes of a platform identifier, and of a fragment
	// without one.
	ListPlatformSize = 12
	ListShortSize    = 20
	// listImmediateSize is the size of an element with data, without the data.
	listImmediateSize = 8
)

// Parts of the first word of an element: last element of the sequence, last element of the buffer,
// type, and size in bytes, including this word.
const (
	listLast        = 1 << 31
	listEndOfBuffer = 1 << 30
	listTypeShift   = 24
	listTypeMask    = 1<<6 - 1
	listSizeMask    = 1<<listTypeShift - 1
)

// The types of elements.
const (
	listAttributes = 1
	listChain      = 2
	listFragment   = 3
	listImmediate  = 4
	listPlatform   = 5
	listShort      = 6
)

// Fragment is memory anywhere on the fabric: process, handle, virtual address and number of bytes.
type Fragment struct {
	Platform Platform
	Handle   uint32 // key for RDMA
	Addr     uint64
	Len      uint32
}

// valid checks that there is a platform and at least one byte, and that the memory is within an
// address space of that many bits.
func (f Fragment) valid(addressBits uint16) error {
	if f.Platform == 0 {
		return fmt.Errorf("fragment at %#x: %w", f.Addr, ErrPlatform)
	}
	return f.inside(addressBits)
}

// inside is valid without the platform.
func (f Fragment) inside(addressBits uint16) error {
	switch {
	case f.Len == 0:
		return fmt.Errorf("fragment of no bytes at %#x: %w", f.Addr, ErrSize)
	case f.Addr > math.MaxUint64>>(64-addressBits)-uint64(f.Len):
		return fmt.Errorf("fragment of %d bytes at %#x, addresses have %d bits: %w", f.Len, f.Addr, addressBits,
			ErrOverflow)
	}
	return nil
}

// overlaps reports whether the two fragments have memory in common.
func (f Fragment) overlaps(o Fragment) bool {
	return f.Platform == o.Platform && f.Addr < o.Addr+uint64(o.Len) && o.Addr < f.Addr+uint64(f.Len)
}

// Naming says where in a list the platform identifier of a fragment is.
type Naming uint8

const (
	// NamedHere is a fragment with an identifier, which is not for other fragments.
	NamedHere Naming = iota
	// NamedOnce is a fragment after an identifier, which is also for those that are NamedBefore.
	NamedOnce
	// NamedBefore is a fragment without an identifier. It is of the same unit as the last one that
	// is NamedOnce, or of the unit that has sent the list if there is none.
	NamedBefore
)

// ListElement is a part of a buffer: a fragment, or the data itself.
type ListElement struct {
	Fragment
	Data        []byte // if not nil, the data; there is no fragment then
	EndOfBuffer bool   // the next element is of another buffer
	Naming      Naming // of the fragment
}

// Bytes returns the number of bytes of the buffer in the element.
func (e *ListElement) Bytes() int64 {
	if e.Data != nil {
		return int64(len(e.Data))
	}
	return int64(e.Len)
}

// ListAttributes describes a whole list with all of its sequences.
type ListAttributes struct {
	AddressBits uint16 // of virtual addresses: 32 or 64
	PageShift   uint16 // the page frames have 2^PageShift bytes, 12 to 30; 0: not said
	Elements    uint32 // fragments and immediate data, 1 to MaxListElements
	Buffers     uint32 // 1 to Elements
	Bytes       uint64 // of all buffers
}

// AttributesOf returns the attributes of a list with these elements. The last element has
// EndOfBuffer.
func AttributesOf(elements []ListElement) ListAttributes {
	a := ListAttributes{AddressBits: 64, Elements: uint32(len(elements))}
	for i := range elements {
		a.Bytes += uint64(elements[i].Bytes())
		if elements[i].EndOfBuffer {
			a.Buffers++
		}
	}
	return a
}

func (a *ListAttributes) valid() error {
	switch {
	case a.AddressBits != 32 && a.AddressBits != 64:
		return fmt.Errorf("addresses of %d bits, must be 32 or 64: %w", a.AddressBits, ErrSize)
	case a.PageShift != 0 && (a.PageShift < 12 || a.PageShift > 30):
		return fmt.Errorf("page frames of 2^%d bytes, must be 2^12 to 2^30: %w", a.PageShift, ErrSize)
	case a.Elements == 0 || a.Elements > MaxListElements:
		return fmt.Errorf("%d elements, must be 1 to %d: %w", a.Elements, MaxListElements, ErrCount)
	case a.Buffers == 0 || a.Buffers > a.Elements:
		return fmt.Errorf("%d buffers of %d elements: %w", a.Buffers, a.Elements, ErrCount)
	}
	return nil
}

// ListDecoder decodes and checks the list of a peer, one sequence after the other. The zero value
// expects the first sequence. ListDecoder borrows the bytes of the sequences and allocates nothing.
type ListDecoder struct {
	// Local is the unit that has sent the list: fragments without an identifier are of this unit.
	Local Platform

	attributes ListAttributes
	sequences  [MaxListSequences][]byte
	n          int
	places     [MaxListSequences]Fragment // where the chain pointers lead, in their order
	chains     int                        // number of places
	ahead      [MaxListSequences]Fragment // those of sequences that are to be added, the next one last
	left       int                        // number of those

	elements, buffers uint32
	bytes             uint64
	open              bool // the last buffer is not complete
	named             bool // the last element was a platform identifier
}

// Attributes returns the attributes at the beginning of the first sequence.
func (d *ListDecoder) Attributes() ListAttributes { return d.attributes }

// Add decodes the next sequence. If a chain pointer leads to another one, more is true, and chain is
// its memory. The caller reads that memory once, and adds it. Otherwise the list is complete and
// conforms to its attributes. The decoder cannot be used after an error.
func (d *ListDecoder) Add(sequence []byte) (chain Fragment, more bool, err error) {
	if err := d.add(sequence); err != nil {
		return Fragment{}, false, fmt.Errorf("scatter-gather list, sequence %d: %w", d.n, err)
	}
	if d.left != 0 {
		return d.ahead[d.left-1], true, nil
	}
	return Fragment{}, false, nil
}

func (d *ListDecoder) add(sequence []byte) error {
	if d.n > 0 && d.left == 0 {
		return fmt.Errorf("a sequence after the last one: %w", ErrTrailing)
	}
	if len(sequence) > MaxListSequence {
		return fmt.Errorf("%d bytes, at most %d: %w", len(sequence), MaxListSequence, ErrLong)
	}
	if d.n > 0 {
		d.left--
		if at := d.ahead[d.left]; len(sequence) != int(at.Len) {
			return fmt.Errorf("%d bytes where the chain pointer says %d: %w", len(sequence), at.Len, ErrSize)
		}
	}
	had, linked := d.elements, d.chains
	index := 0
	for rest, last := sequence, false; !last; index++ {
		element, word, err := cutElement(rest)
		if err != nil {
			return fmt.Errorf("element %d: %w", index, err)
		}
		if err := d.take(element, word, index, had); err != nil {
			return fmt.Errorf("element %d: %w", index, err)
		}
		rest, last = rest[len(element):], word&listLast != 0
		if last && len(rest) != 0 {
			return fmt.Errorf("%d bytes after the last element: %w", len(rest), ErrTrailing)
		}
	}
	if d.elements == had && (d.n > 0 || d.chains == 0) {
		return fmt.Errorf("no memory and no data: %w", ErrCount)
	}
	d.sequences[d.n] = sequence
	d.n++
	for i := d.chains; i > linked; i-- { // what a sequence leads to comes directly after it
		d.ahead[d.left] = d.places[i-1]
		d.left++
	}
	if d.left != 0 {
		return nil
	}
	return d.whole()
}

// whole checks that a complete list conforms to its attributes.
func (d *ListDecoder) whole() error {
	a := &d.attributes
	switch {
	case d.open:
		return fmt.Errorf("the last buffer does not end: %w", ErrCount)
	case d.elements != a.Elements || d.buffers != a.Buffers:
		return fmt.Errorf("%d elements and %d buffers, the attributes say %d and %d: %w", d.elements, d.buffers,
			a.Elements, a.Buffers, ErrCount)
	case d.bytes != a.Bytes:
		return fmt.Errorf("%d bytes, the attributes say %d: %w", d.bytes, a.Bytes, ErrSize)
	}
	return nil
}

func cutElement(b []byte) (element []byte, word uint32, err error) {
	if len(b) < 4 {
		return nil, 0, fmt.Errorf("%d bytes where an element begins: %w", len(b), ErrShort)
	}
	word = binary.BigEndian.Uint32(b)
	size := int(word & listSizeMask)
	if size < listImmediateSize || size%4 != 0 {
		return nil, 0, fmt.Errorf("size %d: %w", size, ErrSize)
	}
	if size > len(b) {
		return nil, 0, fmt.Errorf("%d bytes of %d: %w", len(b), size, ErrShort)
	}
	return b[:size], word, nil
}

// take checks an element, and adds it to the list. index is its number in the sequence, before which
// the list had this many elements.
func (d *ListDecoder) take(b []byte, word uint32, index int, had uint32) error {
	kind := word >> listTypeShift & listTypeMask
	if (kind == listAttributes) != (d.n == 0 && index == 0) {
		return fmt.Errorf("type %d, a list begins with its attributes and has them once: %w", kind, ErrElement)
	}
	if d.named && kind != listShort {
		return fmt.Errorf("type %d after a platform identifier: %w", kind, ErrElement)
	}
	switch kind {
	case listPlatform:
		d.named = true
		return takePlatform(b, word)
	case listShort:
		d.named = false
		if len(b) != ListShortSize {
			return fmt.Errorf("fragment without an identifier, of %d bytes: %w", len(b), ErrSize)
		}
		f := shortAt(b)
		if err := f.inside(d.attributes.AddressBits); err != nil {
			return err
		}
		return d.count(int64(f.Len), word)
	case listAttributes:
		return d.takeAttributes(b, word)
	case listChain:
		return d.takeChain(b, word, d.elements == had)
	case listFragment:
		f, err := decodeFragment(b, d.attributes.AddressBits)
		if err != nil {
			return err
		}
		return d.count(int64(f.Len), word)
	case listImmediate:
		data, err := decodeImmediate(b)
		if err != nil {
			return err
		}
		return d.count(int64(len(data)), word)
	}
	return fmt.Errorf("unknown type %d: %w", kind, ErrElement)
}

func (d *ListDecoder) takeAttributes(b []byte, word uint32) error {
	if len(b) != ListAttributesSize {
		return fmt.Errorf("attributes of %d bytes: %w", len(b), ErrSize)
	}
	if word&(listLast|listEndOfBuffer) != 0 {
		return fmt.Errorf("attributes at the end: %w", ErrElement)
	}
	d.attributes = ListAttributes{
		AddressBits: binary.BigEndian.Uint16(b[4:]),
		PageShift:   binary.BigEndian.Uint16(b[6:]),
		Elements:    binary.BigEndian.Uint32(b[8:]),
		Buffers:     binary.BigEndian.Uint32(b[12:]),
		Bytes:       binary.BigEndian.Uint64(b[16:]),
	}
	return d.attributes.valid()
}

// takePlatform checks a platform identifier. The next element is a fragment without one.
func takePlatform(b []byte, word uint32) error {
	switch {
	case len(b) != ListPlatformSize:
		return fmt.Errorf("platform identifier of %d bytes: %w", len(b), ErrSize)
	case word&(listLast|listEndOfBuffer) != 0:
		return fmt.Errorf("a platform identifier at the end: %w", ErrElement)
	case platformAt(b) == 0:
		return fmt.Errorf("platform identifier: %w", ErrPlatform)
	}
	return nil
}

func platformAt(b []byte) Platform { return Platform(binary.BigEndian.Uint64(b[4:])) }

// shortAt returns a fragment without its platform.
func shortAt(b []byte) Fragment {
	return Fragment{
		Handle: binary.BigEndian.Uint32(b[4:]),
		Addr:   binary.BigEndian.Uint64(b[8:]),
		Len:    binary.BigEndian.Uint32(b[16:]),
	}
}

// takeChain checks a chain pointer. Chain pointers precede all fragments and data of their sequence.
func (d *ListDecoder) takeChain(b []byte, word uint32, chainsOnly bool) error {
	if !chainsOnly {
		return fmt.Errorf("a chain pointer after fragments or data: %w", ErrElement)
	}
	if word&listEndOfBuffer != 0 {
		return fmt.Errorf("a chain pointer that ends a buffer: %w", ErrElement)
	}
	if d.chains+1 == MaxListSequences {
		return fmt.Errorf("more than %d sequences: %w", MaxListSequences, ErrCount)
	}
	f, err := decodeFragment(b, d.attributes.AddressBits)
	if err != nil {
		return err
	}
	if f.Len > MaxListSequence {
		return fmt.Errorf("chain pointer to %d bytes, at most %d: %w", f.Len, MaxListSequence, ErrLong)
	}
	for i, at := range d.places[:d.chains] {
		if f.overlaps(at) {
			return fmt.Errorf("chain pointer %d leads to the memory of chain pointer %d: %w", d.chains, i, ErrLoop)
		}
	}
	d.places[d.chains] = f
	d.chains++
	return nil
}

// count counts a part of a buffer. A sum of MaxListElements lengths cannot overflow.
func (d *ListDecoder) count(bytes int64, word uint32) error {
	if d.elements++; d.elements > d.attributes.Elements {
		return fmt.Errorf("the attributes say %d elements: %w", d.attributes.Elements, ErrCount)
	}
	d.bytes += uint64(bytes)
	d.open = word&listEndOfBuffer == 0
	if !d.open {
		d.buffers++
	}
	return nil
}

func decodeFragment(b []byte, addressBits uint16) (Fragment, error) {
	if len(b) != ListFragmentSize {
		return Fragment{}, fmt.Errorf("fragment of %d bytes: %w", len(b), ErrSize)
	}
	f := fragmentAt(b)
	return f, f.valid(addressBits)
}

func fragmentAt(b []byte) Fragment {
	return Fragment{
		Handle:   binary.BigEndian.Uint32(b[4:]),
		Platform: Platform(binary.BigEndian.Uint64(b[8:])),
		Addr:     binary.BigEndian.Uint64(b[16:]),
		Len:      binary.BigEndian.Uint32(b[24:]),
	}
}

func decodeImmediate(b []byte) ([]byte, error) {
	n := binary.BigEndian.Uint32(b[4:])
	if n == 0 || n > MaxListImmediate {
		return nil, fmt.Errorf("%d bytes of immediate data, must be 1 to %d: %w", n, MaxListImmediate, ErrSize)
	}
	rest := b[listImmediateSize:]
	if len(rest) != int(n+3)&^3 {
		return nil, fmt.Errorf("%d bytes of immediate data in an element of %d: %w", n, len(b), ErrSize)
	}
	for _, p := range rest[n:] {
		if p != 0 {
			return nil, fmt.Errorf("immediate data: %w", ErrPadding)
		}
	}
	return rest[:n:n], nil
}

// Elements returns the parts of all buffers of a complete list, in order.
func (d *ListDecoder) Elements() iter.Seq[ListElement] {
	return func(yield func(ListElement) bool) {
		of, naming := d.Local, NamedBefore
		for _, rest := range d.sequences[:d.n] {
			for len(rest) != 0 {
				word := binary.BigEndian.Uint32(rest)
				b := rest[:word&listSizeMask]
				rest = rest[len(b):]
				e := ListElement{EndOfBuffer: word&listEndOfBuffer != 0}
				switch word >> listTypeShift & listTypeMask {
				case listFragment:
					e.Fragment = fragmentAt(b)
				case listImmediate:
					n := binary.BigEndian.Uint32(b[4:])
					e.Data = b[listImmediateSize:][:n:n]
				case listPlatform:
					of, naming = platformAt(b), NamedOnce
					continue
				case listShort:
					e.Fragment, e.Naming = shortAt(b), naming
					e.Platform, naming = of, NamedBefore
				default:
					continue
				}
				if !yield(e) {
					return
				}
			}
		}
	}
}
