package vhostuser

import (
	"errors"
	"strings"
	"testing"
	"unsafe"
)

// TestByUser looks for rings in memory of two regions. Each must be wholly in one of them.
func TestByUser(t *testing.T) {
	const low, high, size = 0x10000, 0x20000, 4096
	mem := make([]uint64, 2*size/8)
	b := unsafe.Slice((*byte)(unsafe.Pointer(&mem[0])), 2*size)
	m, err := newMemory([]region{
		{guest: 0, user: high, size: size, mem: b[:size:size]},
		{guest: size, user: low, size: size, mem: b[size:]},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		addr, n uint64
		at      int // offset in b
		why     string
	}{
		{high, size, 0, ""}, {high + size - 8, 8, size - 8, ""}, {low + 8, size - 8, size + 8, ""},
		{high, size + 1, 0, "ends behind"}, {high + size - 8, 9, 0, "ends behind"}, {low + size - 8, 16, 0, "ends behind"},
		{low - 8, 8, 0, "in no region"}, {low + size, 8, 0, "in no region"}, {high + 4, 8, 0, "not aligned"},
	} {
		p, err := m.byUser(c.addr, c.n, 8)
		switch {
		case c.why != "":
			if !errors.Is(err, ErrFrontEnd) || !strings.Contains(err.Error(), c.why) {
				t.Errorf("%d bytes at %#x: %v, want %q", c.n, c.addr, err, c.why)
			}
		case err != nil || p != unsafe.Pointer(&b[c.at]):
			t.Errorf("%d bytes at %#x are at another place: %v", c.n, c.addr, err)
		}
	}
}
