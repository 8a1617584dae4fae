//go:build !race

package protocol

import "testing"

// TestListDoesNotAllocate expects no allocations when a decoder is reused, as in an I/O
// unit, and when a list is encoded.
func TestListDoesNotAllocate(t *testing.T) {
	list := goldenList(t, "list")
	elements := goldenElements()
	var d ListDecoder
	var bytes int64
	n := testing.AllocsPerRun(100, func() {
		d = ListDecoder{}
		if _, more, err := d.Add(list); more || err != nil {
			t.Fatal(more, err)
		}
		for e := range d.Elements() {
			bytes += e.Bytes()
		}
	})
	if n != 0 {
		t.Errorf("decoding allocates %v times", n)
	}
	a := AttributesOf(elements)
	b := make([]byte, 0, MaxListSequence)
	if n := testing.AllocsPerRun(100, func() { b = AppendListSequence(b[:0], &a, nil, elements) }); n != 0 {
		t.Errorf("encoding allocates %v times", n)
	}
}
