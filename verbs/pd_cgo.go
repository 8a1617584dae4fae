package verbs

// #include "shim.h"
import "C"

import (
	"net"
	"sync"
	"syscall"

	"github.com/splitnic/splitnic/fabric"
)

// PD is a protection domain. It implements fabric.Domain, and is safe for
// concurrent use.
type PD struct {
	ctx     *Context
	family  family
	closing sync.Mutex
	pd      *C.struct_ibv_pd // nil once closed; used between family.enter and leave
}

var _ fabric.Domain = (*PD)(nil)

func (d *PD) closedErr(op string) error {
	return &OpError{Op: op, Device: d.ctx.name, Err: net.ErrClosed}
}

// Close closes queue pairs, windows, regions and completion queues of the
// domain, and then the domain. It is idempotent; after a failure it can be
// called again.
//
// Implements: int ibv_dealloc_pd(struct ibv_pd *pd)
func (d *PD) Close() error {
	if err := d.family.close(); err != nil {
		return err
	}
	d.closing.Lock()
	defer d.closing.Unlock()
	if d.pd == nil {
		return nil
	}
	if no := syscall.Errno(C.ibv_dealloc_pd(d.pd)); no != 0 {
		return opErr(d.ctx.name, "deallocate protection domain", no, "")
	}
	d.pd = nil
	d.ctx.family.remove(d)
	return nil
}
