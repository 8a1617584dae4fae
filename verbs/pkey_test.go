package verbs

import (
	"errors"
	"testing"
)

func TestChoosePKey(t *testing.T) {
	for _, tc := range []struct {
		name   string
		table  []uint16
		wanted uint16
		index  int
		ok     bool
	}{
		{"the default partition", []uint16{0xffff}, 0xffff, 0, true},
		{"by its partition", []uint16{0xffff}, 0x7fff, 0, true},
		{"not the first", []uint16{0xffff, 0, 0x8001}, 0x8001, 2, true},
		{"a full member rather than a limited one", []uint16{0x0001, 0x8001}, 0x0001, 1, true},
		{"a limited member", []uint16{0xffff, 0x0001}, 0x0001, 1, true},
		{"the first of two", []uint16{0x8001, 0x8001}, 0x8001, 0, true},
		{"the first limited member of two", []uint16{0x0001, 0x0001}, 0x0001, 0, true},
		{"a limited member where a full one is wanted", []uint16{0xffff, 0x0001}, 0x8001, 0, false},
		{"missing", []uint16{0xffff, 0}, 0x8002, 0, false},
		{"of an empty table", nil, 0xffff, 0, false},
		{"of a table of invalid entries", []uint16{0, 0x8000}, 0xffff, 0, false},
		{"no partition", []uint16{0, 0xffff}, 0, 0, false},
		{"no partition, full member", []uint16{0x8000}, 0x8000, 0, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			index, err := choosePKey(tc.table, tc.wanted)
			if index != tc.index || (err == nil) != tc.ok || (err != nil && !errors.Is(err, ErrNoPKey)) {
				t.Errorf("got %d, %v; want %d, %v", index, err, tc.index, tc.ok)
			}
		})
	}
}
