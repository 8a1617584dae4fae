package directed

import (
	"errors"
	"sync"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
)

const (
	// stagingSize is how much of a transfer is at the I/O unit at a time.
	stagingSize = 256 << 10
	// batchSize is how many work requests that takes at most.
	batchSize = 64
	// wantedReads is how many RDMA reads are outstanding, if both devices can.
	wantedReads = 16
)

// connection is an I/O unit's with a requester: made at the first request, and kept.
type connection struct {
	used uint64 // guarded by unit.mu

	mu      sync.Mutex // held for a transfer
	gone    bool       // it is another's place now
	made    uint64     // how often
	dom     fabric.Domain
	cq      fabric.CQ
	qp      fabric.QP // nil: not connected
	staging *pinned
	wrs     []fabric.SendWR
}

// reset gives everything back; mu is held.
func (c *connection) reset() error {
	if c.dom == nil {
		return nil
	}
	var errs []error
	if c.qp != nil {
		errs = append(errs, c.qp.Close())
	}
	if c.staging != nil {
		errs = append(errs, c.staging.Close())
	}
	errs = append(errs, c.dom.Close())
	c.dom, c.cq, c.qp, c.staging = nil, nil, nil, nil
	return errors.Join(errs...)
}

func endOf(a fabric.Address, reads int) protocol.DirectedEnd {
	return protocol.DirectedEnd{
		BoundChannel: protocol.BoundChannel{QPN: a.QPN, PSN: a.PSN, LID: a.LID, GID: a.GID},
		MTU:          uint16(a.MTU), Reads: uint16(reads),
	}
}

func addressOf(e protocol.DirectedEnd) fabric.Address {
	return fabric.Address{GID: e.GID, LID: e.LID, QPN: e.QPN, PSN: e.PSN, MTU: int(e.MTU)}
}
