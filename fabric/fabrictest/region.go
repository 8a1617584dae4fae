package fabrictest

import (
	"reflect"

	"github.com/splitnic/splitnic/fabric"
)

var (
	_ fabric.Region = (*region)(nil)
	_ fabric.Window = (*window)(nil)
)

func newRegion(d *domain, mem []byte, access fabric.Access) *region {
	r := &region{
		dom: d, mem: mem[:len(mem):len(mem)], addr: uint64(reflect.ValueOf(mem).Pointer()), access: access,
	}
	d.dev.net.keys.Lock()
	defer d.dev.net.keys.Unlock()
	var e *keyEntry
	e, r.rkey = d.dev.table.take()
	e.region = r
	return r
}

// LKey implements fabric.Region.
func (r *region) LKey() uint32 { return r.rkey | localBit }

// RKey implements fabric.Region.
func (r *region) RKey() uint32 { return r.rkey }

// Addr implements fabric.Region.
func (r *region) Addr() uint64 { return r.addr }

// Len implements fabric.Region.
func (r *region) Len() int { return len(r.mem) }

// slice returns length bytes of the region at addr, or nil if not all of them are in the region.
func (r *region) slice(addr uint64, length uint32) []byte {
	if !within(addr, uint64(length), r.addr, uint64(len(r.mem))) {
		return nil
	}
	off := addr - r.addr
	return r.mem[off : off+uint64(length)]
}

// within reports whether [addr, addr+length) is in [base, base+size). No sum overflows.
func within(addr, length, base, size uint64) bool {
	return addr >= base && addr-base <= size && length <= size-(addr-base)
}
