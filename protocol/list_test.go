package protocol

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// goldenPlatform and goldenOther identify two I/O units.
const (
	goldenPlatform Platform = 0xf02aeb908daef381
	goldenOther    Platform = 0x0123456789abcdef
)

// goldenElements returns the elements of two buffers: one of two fragments, and one of a
// fragment and eight bytes of data.
func goldenElements() []ListElement {
	return []ListElement{
		{Fragment: Fragment{goldenPlatform, 0xa1b2c3d4, 0x7f0011223000, 4096}},
		{Fragment: Fragment{goldenPlatform, 0xa1b2c3d5, 0x7f0011334000, 65537}, EndOfBuffer: true},
		{Fragment: Fragment{goldenOther, 5, 0x1000, 1}},
		{Data: []byte("directly"), EndOfBuffer: true},
	}
}

// goldenNamed returns a list of goldenPlatform with fragments of its own without an identifier, then
// two of goldenOther with one identifier.
func goldenNamed() []ListElement {
	return []ListElement{
		{Fragment: Fragment{goldenPlatform, 1, 0x1000, 10}, Naming: NamedBefore},
		{Fragment: Fragment{goldenPlatform, 2, 0x2000, 20}, EndOfBuffer: true, Naming: NamedBefore},
		{Fragment: Fragment{goldenOther, 3, 0x3000, 30}, EndOfBuffer: true, Naming: NamedOnce},
		{Data: []byte("data")},
		{Fragment: Fragment{goldenOther, 4, 0x4000, 40}, Naming: NamedBefore},
		{Fragment: Fragment{goldenPlatform, 5, 0x5000, 50}, EndOfBuffer: true},
	}
}

var goldenChain = Fragment{goldenPlatform, 0xc0ffee00, 0x7f0011445000, 2 * ListFragmentSize}

// goldenLists has the sequences in testdata/golden-lists: a list in one sequence, and one in two.
var goldenLists = map[string]func() []byte{
	"list": func() []byte {
		a := AttributesOf(goldenElements())
		return AppendListSequence(nil, &a, nil, goldenElements())
	},
	"list_chained": func() []byte {
		elements := slices.Concat(goldenElements()[:2], goldenElements()[:2])
		a := AttributesOf(elements)
		a.AddressBits, a.PageShift = 64, 12
		return AppendListSequence(nil, &a, []Fragment{goldenChain}, elements[:2])
	},
	"list_named": func() []byte {
		a := AttributesOf(goldenNamed())
		return AppendListSequence(nil, &a, nil, goldenNamed())
	},
	"list_rest": func() []byte { return AppendListSequence(nil, nil, nil, goldenElements()[:2]) },
}

func goldenList(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "golden-lists", name+".bin"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestGoldenLists(t *testing.T) {
	for name, list := range goldenLists {
		if want, got := goldenList(t, name), list(); !bytes.Equal(got, want) {
			t.Errorf("%s:\ngot  %x\nwant %x", name, got, want)
		}
	}
	var whole ListDecoder
	if _, more, err := whole.Add(goldenList(t, "list")); more || err != nil {
		t.Fatal(more, err)
	}
	sameElements(t, &whole, goldenElements())
	named := ListDecoder{Local: goldenPlatform}
	if _, more, err := named.Add(goldenList(t, "list_named")); more || err != nil {
		t.Fatal(more, err)
	}
	sameElements(t, &named, goldenNamed())
	var d ListDecoder
	chain, more, err := d.Add(goldenList(t, "list_chained"))
	if chain != goldenChain || !more || err != nil {
		t.Fatalf("%+v, %v, %v", chain, more, err)
	}
	if _, more, err := d.Add(goldenList(t, "list_rest")); more || err != nil {
		t.Fatal(more, err)
	}
	if a := d.Attributes(); a != (ListAttributes{64, 12, 4, 2, 2 * (4096 + 65537)}) {
		t.Errorf("attributes %+v", a)
	}
	sameElements(t, &d, slices.Concat(goldenElements()[:2], goldenElements()[:2]))
}

func sameElements(t *testing.T, d *ListDecoder, want []ListElement) {
	t.Helper()
	got := slices.Collect(d.Elements())
	if !slices.EqualFunc(got, want, func(a, b ListElement) bool {
		return a.Fragment == b.Fragment && bytes.Equal(a.Data, b.Data) && a.EndOfBuffer == b.EndOfBuffer &&
			a.Naming == b.Naming
	}) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// TestListRoundTrip divides random lists into random sequences, decodes the sequences, and expects
// the same lists.
func TestListRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 500 {
		want := make([]ListElement, 1+r.IntN(300))
		of := goldenPlatform // of fragments without an identifier
		for i := range want {
			want[i].EndOfBuffer = i == len(want)-1 || r.IntN(4) == 0
			if r.IntN(5) == 0 {
				want[i].Data = make([]byte, 1+r.IntN(40))
				for j := range want[i].Data {
					want[i].Data[j] = byte(r.Uint32())
				}
				continue
			}
			want[i].Fragment = Fragment{Platform(1 + r.Uint64N(9)), r.Uint32(), r.Uint64N(1 << 60), 1 + r.Uint32N(1<<31)}
			switch want[i].Naming = Naming(r.IntN(3)); want[i].Naming {
			case NamedHere:
			case NamedOnce:
				of = want[i].Platform
			case NamedBefore:
				want[i].Platform = of
			}
		}
		a := AttributesOf(want)
		sequences, places := cutList(r, a, want)
		d := ListDecoder{Local: goldenPlatform}
		for i, s := range sequences {
			chain, more, err := d.Add(s)
			if err != nil {
				t.Fatal(err)
			}
			if last := i == len(sequences)-1; more == last || more && chain != places[i+1] {
				t.Fatalf("sequence %d of %d leads to %+v, %v", i, len(sequences), chain, more)
			}
		}
		if d.Attributes() != a {
			t.Fatalf("attributes %+v, want %+v", d.Attributes(), a)
		}
		sameElements(t, &d, want)
	}
}

// cutList divides a list into sequences. It makes the last sequence first, because a chain pointer
// has the length of the next sequence.
func cutList(r *rand.Rand, a ListAttributes, elements []ListElement) (sequences [][]byte, places []Fragment) {
	var parts [][]ListElement
	for rest := elements; len(rest) != 0; {
		n := min(len(rest), 20+r.IntN(100), ListFits(rest, MaxListSequence-ListAttributesSize-ListFragmentSize))
		parts = append(parts, rest[:n])
		rest = rest[n:]
	}
	sequences, places = make([][]byte, len(parts)), make([]Fragment, len(parts))
	for i := len(parts) - 1; i >= 0; i-- {
		var head *ListAttributes
		var chains []Fragment
		if i == 0 {
			head = &a
		}
		if i+1 < len(parts) {
			chains = places[i+1 : i+2]
		}
		sequences[i] = AppendListSequence(nil, head, chains, parts[i])
		places[i] = Fragment{goldenPlatform, 9, 1<<60 + uint64(i)*MaxListSequence, uint32(len(sequences[i]))}
	}
	return sequences, places
}

// at returns a copy of b with v at an offset, big-endian.
func at[V uint16 | uint32 | uint64](b []byte, offset int, v V) []byte {
	b = bytes.Clone(b)
	switch v := any(v).(type) {
	case uint16:
		binary.BigEndian.PutUint16(b[offset:], v)
	case uint32:
		binary.BigEndian.PutUint32(b[offset:], v)
	case uint64:
		binary.BigEndian.PutUint64(b[offset:], v)
	}
	return b
}

// Offsets of the elements in the golden list.
const (
	listFirst  = ListAttributesSize
	listSecond = listFirst + ListFragmentSize
	listThird  = listSecond + ListFragmentSize
	listFourth = listThird + ListFragmentSize
)

// TestListRefuses decodes invalid lists that a hostile I/O unit can send in one sequence.
func TestListRefuses(t *testing.T) {
	good, named := goldenList(t, "list"), goldenList(t, "list_named")
	const namedOnce = listFirst + 2*ListShortSize
	chained := goldenList(t, "list_chained")
	word := func(kind, size, flags uint32) uint32 { return flags | kind<<listTypeShift | size }
	attributes := func(a ListAttributes, elements ...ListElement) []byte {
		return AppendListSequence(nil, &a, nil, elements)
	}
	one := ListElement{Fragment: Fragment{1, 2, 3, 4}, EndOfBuffer: true}
	many := make([]ListElement, 100)
	for i := range many {
		many[i] = one
	}
	for _, tt := range []struct {
		name string
		b    []byte
		want error
	}{
		{"nothing", nil, ErrShort},
		{"half a word", good[:2], ErrShort},
		{"too long", append(bytes.Clone(good), make([]byte, MaxListSequence)...), ErrLong},
		{"attributes missing", AppendListSequence(nil, nil, nil, goldenElements()), ErrElement},
		{"attributes cut", good[:ListAttributesSize-1], ErrShort},
		{"attributes alone", attributes(AttributesOf([]ListElement{one})), ErrElement},
		{"attributes twice", at(good, listFirst, word(listAttributes, ListFragmentSize, 0)), ErrElement},
		{"attributes of another size", at(good, 0, word(listAttributes, ListFragmentSize, 0)), ErrSize},
		{"attributes that end a buffer", at(good, 0, word(listAttributes, ListAttributesSize, listEndOfBuffer)), ErrElement},
		{"addresses of 48 bits", at[uint16](good, 4, 48), ErrSize},
		{"addresses of 0 bits", at[uint16](good, 4, 0), ErrSize},
		{"addresses that need more bits", at[uint16](good, 4, 32), ErrOverflow},
		{"small page frames", at[uint16](good, 6, 11), ErrSize},
		{"huge page frames", at[uint16](good, 6, 31), ErrSize},
		{"no elements announced", at[uint32](good, 8, 0), ErrCount},
		{"too many elements announced", at[uint32](good, 8, MaxListElements+1), ErrCount},
		{"fewer elements than announced", at[uint32](good, 8, 5), ErrCount},
		{"more elements than announced", at[uint32](good, 8, 3), ErrCount},
		{"no buffers announced", at[uint32](good, 12, 0), ErrCount},
		{"fewer buffers than announced", at[uint32](good, 12, 3), ErrCount},
		{"more buffers than elements", at[uint32](good, 12, 5), ErrCount},
		{"fewer bytes than announced", at[uint64](good, 16, 1<<40), ErrSize},
		{"more bytes than announced", at[uint64](good, 16, 1), ErrSize},
		{"an element of no bytes", at(good, listFirst, word(listFragment, 0, 0)), ErrSize},
		{"an element of four bytes", at(good, listFirst, word(listFragment, 4, 0)), ErrSize},
		{"an element of an odd size", at(good, listFirst, word(listFragment, 30, 0)), ErrSize},
		{"an element beyond the end", at(good, listFourth, word(listImmediate, 20, listLast)), ErrShort},
		{"an element of 16 MiB", at(good, listFirst, word(listFragment, listSizeMask&^3, 0)), ErrShort},
		{"type 0", at(good, listFirst, word(0, ListFragmentSize, 0)), ErrElement},
		{"type 7", at(good, listFirst, word(7, ListFragmentSize, 0)), ErrElement},
		{"a fragment of another size", at(good, listFirst, word(listFragment, ListFragmentSize+4, 0)), ErrSize},
		{"no platform", at[uint64](good, listFirst+8, 0), ErrPlatform},
		{"an address that wraps", at[uint64](good, listSecond+16, math.MaxUint64-65536), ErrOverflow},
		{"no length", at[uint32](good, listFirst+24, 0), ErrSize},
		{"no last element", at(good, listFourth, word(listImmediate, 16, listEndOfBuffer)), ErrShort},
		{"elements after the last", at(good, listFirst, word(listFragment, ListFragmentSize, listLast)), ErrTrailing},
		{"a buffer that does not end", at(good, listFourth, word(listImmediate, 16, listLast)), ErrCount},
		{"a last buffer that does not end, beside as many as announced", attributes(ListAttributes{64, 0, 2, 1, 8}, one,
			ListElement{Fragment: one.Fragment}), ErrCount},
		{"a short fragment of another size", at(named, listFirst, word(listShort, ListShortSize-4, 0)), ErrSize},
		{"a short fragment of no bytes", at[uint32](named, listFirst+16, 0), ErrSize},
		{"a short fragment whose address wraps", at[uint64](named, listFirst+8, math.MaxUint64-5), ErrOverflow},
		{"an identifier of another size", at(named, namedOnce, word(listPlatform, ListPlatformSize+4, 0)), ErrSize},
		{"an identifier of nobody", at[uint64](named, namedOnce+4, 0), ErrPlatform},
		{"an identifier that ends a buffer", at(named, namedOnce, word(listPlatform, ListPlatformSize, listEndOfBuffer)),
			ErrElement},
		{"an identifier that ends the list", at(named, namedOnce, word(listPlatform, ListPlatformSize, listLast)),
			ErrElement},
		{"an identifier before data", at(named, namedOnce+ListPlatformSize, word(listImmediate, ListShortSize, 0)),
			ErrElement},
		{"two identifiers", slices.Concat(named[:namedOnce+ListPlatformSize], named[namedOnce:]), ErrElement},
		{"no data", at[uint32](good, listFourth+4, 0), ErrSize},
		{"more data than the element", at[uint32](good, listFourth+4, 9), ErrSize},
		{"less data than the element", at[uint32](good, listFourth+4, 4), ErrSize},
		{"padding", at[uint32](good, listFourth+4, 7), ErrPadding},
		{"too much data", attributes(ListAttributes{64, 0, 1, 1, 2000},
			ListElement{Data: make([]byte, 2000), EndOfBuffer: true}), ErrSize},
		{"2^32-1 bytes of data", at[uint32](good, listFourth+4, math.MaxUint32), ErrSize},
		{"a hundred elements for one", attributes(ListAttributes{64, 0, 1, 1, 400}, many...), ErrCount},
		{"a chain pointer late", at(good, listSecond, word(listChain, ListFragmentSize, 0)), ErrElement},
		{"a chain pointer behind a fragment", at(chained, listThird, word(listChain, ListFragmentSize, listLast)),
			ErrElement},
		{"two chain pointers to the same memory", slices.Concat(chained[:listSecond], chained[listFirst:]), ErrLoop},
		{"a chain pointer that ends a buffer", at(chained, listFirst, word(listChain, ListFragmentSize, listEndOfBuffer)),
			ErrElement},
		{"a chain pointer to nobody", at[uint64](chained, listFirst+8, 0), ErrPlatform},
		{"a chain pointer to nothing", at[uint32](chained, listFirst+24, 0), ErrSize},
		{"a chain pointer to too much", at[uint32](chained, listFirst+24, MaxListSequence+1), ErrLong},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var d ListDecoder
			if _, _, err := d.Add(tt.b); !errors.Is(err, tt.want) {
				t.Errorf("got error %v, want one that is %q", err, tt.want)
			}
		})
	}
}

// TestNameOnce expects every fragment to keep its unit, and identifiers only where they are needed.
func TestNameOnce(t *testing.T) {
	of := func(units ...Platform) (list []ListElement) {
		for i, p := range units {
			e := ListElement{Fragment: Fragment{p, 1, uint64(i) << 12, 1}, EndOfBuffer: true}
			if p == 0 {
				e = ListElement{Data: []byte("data"), EndOfBuffer: true}
			}
			list = append(list, e)
		}
		return list
	}
	const l, a, b = goldenPlatform, 2, 3
	for _, list := range []struct {
		units []Platform
		want  []Naming // of the fragments
	}{
		{[]Platform{l, l, 0, l}, []Naming{NamedBefore, NamedBefore, NamedBefore}},
		{[]Platform{a}, []Naming{NamedHere}},
		{[]Platform{a, 0, a, a}, []Naming{NamedOnce, NamedBefore, NamedBefore}},
		{[]Platform{l, a, l, b, l}, []Naming{NamedBefore, NamedHere, NamedBefore, NamedHere, NamedBefore}},
		{[]Platform{a, a, l, a, b, b, l, l}, []Naming{
			NamedOnce, NamedBefore, NamedHere, NamedBefore, NamedOnce, NamedBefore, NamedOnce, NamedBefore,
		}},
	} {
		elements := of(list.units...)
		named := NameOnce(elements, l)
		attributes := AttributesOf(named)
		d := ListDecoder{Local: l}
		if _, more, err := d.Add(AppendListSequence(nil, &attributes, nil, named)); more || err != nil {
			t.Fatal(more, err)
		}
		var got []Naming
		var units []Platform
		for e := range d.Elements() {
			units = append(units, e.Platform)
			if e.Data == nil {
				got = append(got, e.Naming)
			}
		}
		if !slices.Equal(got, list.want) || !slices.Equal(units, list.units) {
			t.Errorf("%v is named %v and read as %v, want %v", list.units, got, units, list.want)
		}
	}
}

// TestChainRefuses decodes invalid lists that a hostile I/O unit can send in several sequences.
func TestChainRefuses(t *testing.T) {
	elements := goldenElements()[:2]
	place := func(i int) Fragment {
		return Fragment{goldenPlatform, 1, uint64(0x10000 * i), 3 * ListFragmentSize}
	}
	a := ListAttributes{AddressBits: 64, Elements: MaxListElements, Buffers: 1, Bytes: 1}
	first := AppendListSequence(nil, &a, []Fragment{place(1)}, elements)
	link := func(to ...Fragment) []byte { return AppendListSequence(nil, nil, to, elements) }
	t.Run("loops", func(t *testing.T) {
		for name, back := range map[string]Fragment{
			"to itself": place(2), "to the one before": place(1),
			"into the middle": {goldenPlatform, 77, 0x10000 + 3*ListFragmentSize - 1, 28},
		} {
			var d ListDecoder
			_, _, err := d.Add(first)
			if err == nil {
				_, _, err = d.Add(link(place(2)))
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := d.Add(link(back)); !errors.Is(err, ErrLoop) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
	t.Run("the same address of another unit", func(t *testing.T) {
		var d ListDecoder
		_, _, err := d.Add(first)
		if err == nil {
			_, _, err = d.Add(link(Fragment{goldenOther, 1, 0x10000, 3 * ListFragmentSize}))
		}
		if err != nil {
			t.Error(err)
		}
	})
	// The sequence after n others ends the list, or leads to one more.
	after := func(t *testing.T, n int, ends bool) error {
		whole := AttributesOf(slices.Repeat(elements, MaxListSequences))
		sequence := AppendListSequence(nil, &whole, []Fragment{place(1)}, elements)
		var d ListDecoder
		for i := range n {
			if _, more, err := d.Add(sequence); !more || err != nil {
				t.Fatalf("the list ends with sequence %d: %v", i, err)
			}
			to := place(i + 2)
			if i+2 == n && ends {
				to.Len = 2 * ListFragmentSize
			}
			if sequence = link(to); i+1 == n && ends {
				sequence = link()
			}
		}
		_, _, err := d.Add(sequence)
		return err
	}
	t.Run("several chain pointers", func(t *testing.T) {
		// Sequence 0 leads to 1, 4 and 5, and 1 leads to 2 and 3: their elements are in this order.
		one := func(i int) []ListElement {
			return []ListElement{{Fragment: Fragment{goldenPlatform, uint32(i), 1, 1}, EndOfBuffer: true}}
		}
		leads := map[int][]int{0: {1, 4, 5}, 1: {2, 3}}
		to := func(i int) (places []Fragment) {
			for _, j := range leads[i] {
				p := place(j)
				p.Len = uint32(ListFragmentSize * (1 + len(leads[j])))
				places = append(places, p)
			}
			return places
		}
		a := ListAttributes{AddressBits: 64, Elements: 6, Buffers: 6, Bytes: 6}
		var d ListDecoder
		chain, more, err := d.Add(AppendListSequence(nil, &a, to(0), one(0)))
		for i := 1; i < 6; i++ {
			if !more || err != nil || chain.Addr != place(i).Addr {
				t.Fatalf("before sequence %d: %+v, %v, %v", i, chain, more, err)
			}
			chain, more, err = d.Add(AppendListSequence(nil, nil, to(i), one(i)))
		}
		if more || err != nil {
			t.Fatal(more, err)
		}
		next := uint32(0)
		for e := range d.Elements() {
			if e.Handle != next {
				t.Errorf("element %d is that of sequence %d", next, e.Handle)
			}
			next++
		}
	})
	t.Run("too many chain pointers", func(t *testing.T) {
		var d ListDecoder
		var to []Fragment
		for i := range MaxListSequences {
			to = append(to, place(i+1))
		}
		if _, _, err := d.Add(AppendListSequence(nil, &a, to, elements)); !errors.Is(err, ErrCount) {
			t.Errorf("17 sequences: %v", err)
		}
		d = ListDecoder{}
		if _, _, err := d.Add(AppendListSequence(nil, &a, to[1:], elements)); err != nil {
			t.Errorf("16 sequences: %v", err)
		}
	})
	t.Run("the longest chain", func(t *testing.T) {
		if err := after(t, MaxListSequences-1, true); err != nil {
			t.Error(err)
		}
	})
	t.Run("too long a chain", func(t *testing.T) {
		if err := after(t, MaxListSequences-1, false); !errors.Is(err, ErrCount) {
			t.Error(err)
		}
	})
	again, alone := AppendListSequence(nil, &a, nil, nil), AppendListSequence(nil, nil, []Fragment{place(2)}, nil)
	for name, tt := range map[string]struct {
		second []byte
		want   error
	}{
		"another length":                     {AppendListSequence(nil, nil, nil, elements), ErrSize},
		"attributes again":                   {append(again, make([]byte, 60)...), ErrElement},
		"only a chain pointer":               {append(alone, make([]byte, 56)...), ErrTrailing},
		"a chain pointer behind its element": {misplaced(link(place(2))), ErrElement},
	} {
		t.Run(name, func(t *testing.T) {
			var d ListDecoder
			if _, _, err := d.Add(first); err != nil {
				t.Fatal(err)
			}
			if _, _, err := d.Add(tt.second); !errors.Is(err, tt.want) {
				t.Errorf("got error %v, want one that is %q", err, tt.want)
			}
		})
	}
	t.Run("nothing but a chain pointer", func(t *testing.T) {
		var d ListDecoder
		to := place(1)
		to.Len = ListFragmentSize
		if _, _, err := d.Add(AppendListSequence(nil, &a, []Fragment{to}, nil)); err != nil {
			t.Fatal(err)
		}
		if _, _, err := d.Add(AppendListSequence(nil, nil, []Fragment{place(2)}, nil)); !errors.Is(err, ErrCount) {
			t.Error(err)
		}
	})
	t.Run("a sequence after the last", func(t *testing.T) {
		var d ListDecoder
		if _, _, err := d.Add(goldenList(t, "list")); err != nil {
			t.Fatal(err)
		}
		if _, _, err := d.Add(goldenList(t, "list_rest")); !errors.Is(err, ErrTrailing) {
			t.Error(err)
		}
	})
}

// misplaced returns b with its first two elements, which have the same length, exchanged.
func misplaced(b []byte) []byte {
	n := ListFragmentSize
	return slices.Concat(b[n:2*n], b[:n], b[2*n:])
}

// FuzzList fuzzes the decoder with lists in up to two sequences. A list that the decoder accepts
// has to be encoded to the same bytes again.
func FuzzList(f *testing.F) {
	for name := range goldenLists {
		f.Add(goldenList(f, name), goldenList(f, "list_rest"))
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		var d ListDecoder
		chain, more, err := d.Add(first)
		if err != nil {
			return
		}
		again := [][]byte{first}
		if more {
			_, more, err = d.Add(second)
			if again = append(again, second); more || err != nil {
				return
			}
		}
		elements := slices.Collect(d.Elements())
		a := d.Attributes()
		if a.Elements != uint32(len(elements)) || AttributesOf(elements).Bytes != a.Bytes {
			t.Fatalf("%+v of %+v", a, elements)
		}
		if len(again) == 1 {
			if got := AppendListSequence(nil, &a, nil, elements); !bytes.Equal(got, first) {
				t.Errorf("accepted %x\nencoded again %x", first, got)
			}
			return
		}
		// The number of elements in the first sequence follows from the length of the sequence.
		n := ListFits(elements, len(first)-ListAttributesSize-ListFragmentSize)
		got := AppendListSequence(nil, &a, []Fragment{chain}, elements[:n])
		rest := AppendListSequence(nil, nil, nil, elements[n:])
		if !bytes.Equal(got, first) || !bytes.Equal(rest, second) {
			t.Errorf("accepted %x %x\nencoded again %x %x", first, second, got, rest)
		}
	})
}
