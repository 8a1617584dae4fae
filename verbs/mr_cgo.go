package verbs

// #include "shim.h"
import "C"

import (
	"fmt"
	"sync"
	"syscall"
	"unsafe"

	"github.com/splitnic/splitnic/fabric"
)

// MR is a registered memory region. It implements fabric.Region, and is safe
// for concurrent use.
type MR struct {
	pd         *PD
	lkey, rkey uint32
	addr       uint64
	length     int

	mu    sync.Mutex
	bound int              // windows bound to it
	mr    *C.struct_ibv_mr // nil once closed
}

var _ fabric.Region = (*MR)(nil)

// Register implements fabric.Domain. It may take long: 64 MiB of untouched
// pages are a tenth of a second.
//
// With fabric.Relaxed the adapter may set the attribute of that name in its PCI Express
// writes to the memory, so that they pass others, which the root complex of some machines
// needs for full throughput. The flag is one of IBV_ACCESS_OPTIONAL_RANGE, which a kernel
// or driver ignores that does not know it; Soft-RoCE does. It is sound where data is
// looked at only after its own completion:
//
//   - The entry of the completion queue is written after the data, without the attribute,
//     and such a write passes no other, relaxed or not (PCI Express Base Specification,
//     2.4.1, Transaction Ordering Rules: A2a, A2b). So who has found the completion finds
//     the data. Linux has its own users rely on that (include/rdma/ib_verbs.h at
//     map_mr_sg).
//   - So does who hears of the write otherwise, by a message that its sender has sent once
//     it was acknowledged: the adapter has passed on the data before, and the completion of
//     the message passes no earlier write either.
//   - Nothing else may be concluded from memory: neither from a later byte to an earlier
//     one, nor from one write to another.
//   - A window has a key of its own, and verbs have no way to relax that: the rights of a
//     bind (mw_access_flags) do not include it. What is written through a window stays in
//     order, whatever the region behind it allows.
//
// Implements: struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
func (d *PD) Register(mem []byte, access fabric.Access) (fabric.Region, error) {
	op := fmt.Sprintf("register %d bytes of memory", len(mem))
	if !d.family.enter() {
		return nil, d.closedErr(op)
	}
	defer d.family.leave()
	if len(mem) == 0 {
		return nil, opErr(d.ctx.name, op, syscall.EINVAL, "")
	}
	var flags C.int
	if access&fabric.LocalWrite != 0 {
		flags |= C.IBV_ACCESS_LOCAL_WRITE
	}
	if access&fabric.RemoteWrite != 0 {
		flags |= C.IBV_ACCESS_REMOTE_WRITE
	}
	if access&fabric.RemoteRead != 0 {
		flags |= C.IBV_ACCESS_REMOTE_READ
	}
	if access&fabric.WindowBind != 0 {
		flags |= C.IBV_ACCESS_MW_BIND
	}
	if access&fabric.Relaxed != 0 {
		flags |= C.IBV_ACCESS_RELAXED_ORDERING
	}
	r := &MR{pd: d, addr: uint64(uintptr(unsafe.Pointer(&mem[0]))), length: len(mem)}
	if no := syscall.Errno(C.snv_reg_mr(d.pd, unsafe.Pointer(&mem[0]), C.size_t(len(mem)), flags, &r.mr)); no != 0 {
		limit, limited := MemlockLimit()
		return nil, opErr(d.ctx.name, op, no, regHint(no, len(mem), limit, limited))
	}
	r.lkey, r.rkey = uint32(r.mr.lkey), uint32(r.mr.rkey)
	d.family.add(r, rankMR)
	return r, nil
}

// LKey implements fabric.Region.
func (r *MR) LKey() uint32 { return r.lkey }

// RKey implements fabric.Region.
func (r *MR) RKey() uint32 { return r.rkey }

// Addr implements fabric.Region.
func (r *MR) Addr() uint64 { return r.addr }

// Len implements fabric.Region.
func (r *MR) Len() int { return r.length }

// Close implements fabric.Region. While a window is bound to the region it
// fails with EBUSY and changes nothing.
//
// Implements: int ibv_dereg_mr(struct ibv_mr *mr)
func (r *MR) Close() error {
	const op = "deregister memory"
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mr == nil {
		return nil
	}
	if r.bound > 0 {
		return opErr(r.pd.ctx.name, op, syscall.EBUSY,
			fmt.Sprintf("%d windows are bound to it: unbind or close them first", r.bound))
	}
	if no := syscall.Errno(C.ibv_dereg_mr(r.mr)); no != 0 {
		return opErr(r.pd.ctx.name, op, no, "")
	}
	r.mr = nil
	r.pd.family.remove(r)
	return nil
}
