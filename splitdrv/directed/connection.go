package directed

import (
	"context"
	"sync"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
)

const (
	// stagingSize is the size of the staging memory in bytes: the part of a transfer that is
	// at the I/O unit at a time.
	stagingSize = 256 << 10
	// batchSize is the largest number of work requests for one such part.
	batchSize = 64
	// wantedReads is the number of outstanding RDMA reads, if both devices support as many.
	wantedReads = 16
)

// connection is a connection of an I/O unit with a requester. It is made at the first request
// and kept for later ones.
type connection struct {
	used uint64 // unit.clock at the last use; guarded by unit.mu

	mu      sync.Mutex // held during a transfer
	gone    bool       // the connection is not in unit.conns any more
	made    uint64     // how often a queue pair was connected
	dom     fabric.Domain
	life    context.Context // done when an event says that the connection has failed
	cq      fabric.CQ
	qp      fabric.QP // nil if not connected
	staging *pinned
	wrs     []fabric.SendWR
}

// reset releases all resources of the connection. The caller holds c.mu.
func (c *connection) reset() error {
	if c.dom == nil {
		return nil
	}
	err := c.staging.closeWith(c.dom)
	c.dom, c.cq, c.qp, c.staging = nil, nil, nil, nil
	return err
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
