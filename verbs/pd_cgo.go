package verbs

// #include "shim.h"
import "C"

import (
	"net"
	"sync"

	"github.com/splitnic/splitnic/fabric"
)

// PD is a protection domain. It implements fabric.Domain, and is safe for
// concurrent use.
type PD struct {
	ctx     *Context
	family  family
	closing sync.Mutex
	pd      *C.struct_ibv_pd // nil once closed; used between family.enter and leave

	placing sync.Mutex // guards the following fields
	placed  bool       // the following fields are set
	changes uint64     // Context.changes before they were read
	port    PortAttr
	gid     GIDEntry
	pkey    int // index into the port's partition key table
}

var _ fabric.Domain = (*PD)(nil)

// NewDomain implements fabric.Device.
//
// Implements: struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
func (c *Context) NewDomain() (fabric.Domain, error) {
	const op = "allocate protection domain"
	if !c.family.enter() {
		return nil, &OpError{Op: op, Device: c.name, Err: net.ErrClosed}
	}
	defer c.family.leave()
	d := &PD{ctx: c}
	if no := errno(C.snv_alloc_pd(c.ctx, &d.pd)); no != 0 {
		return nil, opErr(c.name, op, no, "")
	}
	c.family.add(d, rankPD)
	return d, nil
}

// place returns the port and the GID of the domain's queue pairs, and sets pkey. They are
// determined when the first queue pair is created, and again after a change: reading the GID table takes longer
// than creating a queue pair.
func (d *PD) place() (PortAttr, GIDEntry, error) {
	d.placing.Lock()
	defer d.placing.Unlock()
	changes := d.ctx.changes.Load()
	if d.placed && d.changes == changes {
		return d.port, d.gid, nil
	}
	port, err := d.ctx.Port(d.ctx.cfg.port)
	if err != nil {
		return PortAttr{}, GIDEntry{}, err
	}
	gid, _, err := d.ctx.ChooseGID()
	if err != nil && (port.needsGID() || d.ctx.cfg.gidIndex >= 0) {
		return PortAttr{}, GIDEntry{}, err
	}
	pkey, err := d.ctx.ChoosePKey()
	if err != nil {
		return PortAttr{}, GIDEntry{}, err
	}
	d.port, d.gid, d.pkey, d.placed, d.changes = port, gid, pkey, true, changes
	return port, gid, nil
}

func (d *PD) closedErr(op string) error {
	return &OpError{Op: op, Device: d.ctx.name, Err: net.ErrClosed}
}

// Close closes the queue pairs, windows, regions and completion queues of the domain, and
// then the domain. It is idempotent, and can be called again after a failure.
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
	if no := d.ctx.given(errno(C.ibv_dealloc_pd(d.pd))); no != 0 {
		return opErr(d.ctx.name, "deallocate protection domain", no, "")
	}
	d.pd = nil
	d.ctx.family.remove(d)
	return nil
}
