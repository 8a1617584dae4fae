package verbs

// #include "shim.h"
import "C"

import (
	"fmt"
	"sync"
	"syscall"
	"unsafe"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/units"
)

// MR is a registered memory region. It implements fabric.Region, and is safe
// for concurrent use.
type MR struct {
	pd         *PD
	lkey, rkey uint32
	addr       uint64
	length     int

	mu    sync.Mutex
	bound int              // number of windows bound to the region
	mr    *C.struct_ibv_mr // nil once closed
}

var _ fabric.Region = (*MR)(nil)

// Register implements fabric.Domain. It may take long: 0.1 s for 64 MiB of untouched pages.
//
// With fabric.Relaxed the adapter may set the Relaxed Ordering attribute in its PCI Express
// writes to the memory. These writes may then pass other writes, which the root complex of
// some machines needs for full throughput. The flag is in IBV_ACCESS_OPTIONAL_RANGE: a kernel
// or driver that does not know the flag ignores it, as Soft-RoCE does. The flag is safe if
// the program reads data only after the completion for that data:
//
//   - The completion queue entry is written after the data, without the attribute. Such a
//     write does not pass any other write, relaxed or not (PCI Express Base Specification,
//     2.4.1, Transaction Ordering Rules: A2a, A2b). So a reader that has polled the
//     completion sees the data. Users inside the Linux kernel rely on that
//     (include/rdma/ib_verbs.h at map_mr_sg).
//   - The same holds if the peer announces the write by a message that it sends after the
//     write was acknowledged: the adapter has passed on the data before the acknowledgement,
//     and the completion of the message does not pass an earlier write either.
//   - Memory contents imply nothing else: the arrival of a byte does not imply the arrival of
//     an earlier byte, nor does one write imply another.
//   - A window has its own key, and verbs cannot relax the order for that key: the access
//     rights of a bind (mw_access_flags) do not include relaxed ordering. Writes through a
//     window stay in order, whatever the region of the window allows.
//
// Implements: struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
func (d *PD) Register(mem []byte, access fabric.Access) (fabric.Region, error) {
	op := fmt.Sprintf("register %s of memory", units.Size(len(mem)))
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
	if no := errno(C.snv_reg_mr(d.pd, unsafe.Pointer(&mem[0]), C.size_t(len(mem)), flags, &r.mr)); no != 0 {
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

// Close implements fabric.Region. While a window is bound to the region, Close fails with
// EBUSY and changes nothing.
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
	if no := r.pd.ctx.given(errno(C.ibv_dereg_mr(r.mr))); no != 0 {
		return opErr(r.pd.ctx.name, op, no, "")
	}
	r.mr = nil
	r.pd.family.remove(r)
	return nil
}
