package fabrictest

import (
	"fmt"
	"reflect"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/fabric"
)

var (
	_ fabric.Region = (*region)(nil)
	_ fabric.Window = (*window)(nil)
)

type region struct {
	dom            *domain
	mem            []byte
	addr           uint64
	lkey, rkey     uint32
	mayWriteLocal  bool
	mayWriteRemote bool
	mayReadRemote  bool
	mayBind        bool

	// Guarded by Network.keys.
	closed bool
	asked  int // windows whose owner has them bound to the region
	bound  int // windows that the device has bound to it
}

func newRegion(d *domain, mem []byte, access fabric.Access) *region {
	r := &region{
		dom:            d,
		mem:            mem[:len(mem):len(mem)],
		addr:           uint64(reflect.ValueOf(mem).Pointer()),
		mayWriteLocal:  access&fabric.LocalWrite != 0,
		mayWriteRemote: access&fabric.RemoteWrite != 0,
		mayReadRemote:  access&fabric.RemoteRead != 0,
		mayBind:        access&fabric.WindowBind != 0,
	}
	d.dev.net.keys.Lock()
	defer d.dev.net.keys.Unlock()
	var e *keyEntry
	e, r.rkey = d.dev.table.take()
	r.lkey = r.rkey | localBit
	e.region = r
	return r
}

// LKey implements fabric.Region.
func (r *region) LKey() uint32 { return r.lkey }

// RKey implements fabric.Region.
func (r *region) RKey() uint32 { return r.rkey }

// Addr implements fabric.Region.
func (r *region) Addr() uint64 { return r.addr }

// Len implements fabric.Region.
func (r *region) Len() int { return len(r.mem) }

// Close implements fabric.Region.
func (r *region) Close() error {
	d := r.dom
	n := d.dev.net
	n.keys.Lock()
	if r.closed {
		n.keys.Unlock()
		return nil
	}
	if bound := max(r.asked, r.bound); bound != 0 {
		n.keys.Unlock()
		return fmt.Errorf("deregistering %d bytes on %s: %d memory windows are bound to the region; unbind or close them first: %w",
			len(r.mem), d.dev.node.name, bound, unix.EBUSY)
	}
	r.closed = true
	d.dev.table.give(r.rkey)
	n.keys.Unlock()
	d.mu.Lock()
	delete(d.regions, r)
	d.mu.Unlock()
	return nil
}

// slice returns the region's bytes at addr, or nil if they are not all in it.
func (r *region) slice(addr uint64, length uint32) []byte {
	if !within(addr, uint64(length), r.addr, uint64(len(r.mem))) {
		return nil
	}
	off := addr - r.addr
	return r.mem[off : off+uint64(length)]
}
