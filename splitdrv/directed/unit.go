package directed

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
)

// unit is a node in the role of the I/O unit: it moves data between its devices and requesters.
type unit struct {
	cfg *Config

	mu    sync.Mutex // guards the following fields
	conns map[peers]*connection
	clock uint64 // incremented with each use of a connection
}

// peers are an owner and a requester. The connection for the requests that a requester makes to
// one owner reaches only the memory that is registered for this owner.
type peers struct{ owner, requester protocol.Platform }

// connections returns how many connections there are, and how many were made.
func (u *unit) connections() (now int, made uint64) {
	u.mu.Lock()
	conns := slices.Collect(maps.Values(u.conns))
	u.mu.Unlock()
	for _, c := range conns {
		c.mu.Lock()
		if c.qp != nil {
			now++
		}
		made += c.made
		c.mu.Unlock()
	}
	return now, made
}

// close closes the connections. It returns the last error.
func (u *unit) close() error {
	u.mu.Lock()
	conns := u.conns
	u.conns = make(map[peers]*connection)
	u.mu.Unlock()
	var last error
	for _, c := range conns {
		c.mu.Lock()
		c.gone = true
		if err := c.reset(); err != nil {
			last = err
		}
		c.mu.Unlock()
	}
	return last
}

// acquire returns the connection for an owner and a requester, with its mutex locked. The
// connection may not be connected.
func (u *unit) acquire(p peers) *connection {
	for {
		u.mu.Lock()
		c := u.conns[p]
		if c == nil {
			u.evict()
			c = &connection{}
			u.conns[p] = c
		}
		u.clock++
		c.used = u.clock
		u.mu.Unlock()
		c.mu.Lock()
		if !c.gone {
			return c
		}
		c.mu.Unlock()
	}
}

// evict makes room for a connection. It closes the least recently used connection that is not
// in use. The caller holds u.mu.
func (u *unit) evict() {
	for len(u.conns) >= u.cfg.MaxConnections {
		var oldest *connection
		var of peers
		for p, c := range u.conns {
			if oldest != nil && c.used > oldest.used || !c.mu.TryLock() {
				continue
			}
			if oldest != nil {
				oldest.mu.Unlock()
			}
			oldest, of = c, p
		}
		if oldest == nil {
			return // each connection is in use by a request, and each link has one request at most
		}
		oldest.gone = true
		_ = oldest.reset() // the connection is not in use
		oldest.mu.Unlock()
		delete(u.conns, of)
	}
}

// join connects c to a unit with memory, unless it is connected, for the requests of a requester.
// Messages to the unit go over link l. The caller holds c.mu.
func (u *unit) join(ctx context.Context, l *Link, c *connection, to, requester protocol.Platform) error {
	if c.qp != nil {
		failed, err := c.qp.Failed()
		if err == nil && !failed && c.life.Err() == nil {
			return nil
		}
		if err := c.reset(); err != nil {
			return err
		}
	}
	reads := min(wantedReads, u.cfg.Device.Limits().MaxRdAtomic)
	for {
		granted, err := u.connectTo(ctx, l, c, protocol.DirectedConnect{
			From: u.cfg.Platform, To: to, Requester: requester, End: protocol.DirectedEnd{Reads: uint16(reads)},
		})
		if err != nil {
			return errors.Join(err, c.reset())
		}
		if granted >= reads {
			c.made++
			return nil
		}
		if err := c.reset(); err != nil {
			return err
		}
		if reads = granted; reads < 1 {
			return fmt.Errorf("%v answers no RDMA reads: %w", to, fabric.ErrUnsupported)
		}
	}
}

// connectTo makes a queue pair for the number of outstanding reads that ask has, and returns how
// many the unit with the memory grants. If it grants fewer, the queue pair is not connected.
func (u *unit) connectTo(
	ctx context.Context, l *Link, c *connection, ask protocol.DirectedConnect,
) (granted int, err error) {
	reads := int(ask.End.Reads)
	if c.dom, err = u.cfg.Device.NewDomain(); err != nil {
		return 0, err
	}
	life, end := context.WithCancelCause(context.Background())
	c.life = life
	listen(c.dom, end, end)
	if c.staging, err = pin(c.dom, stagingSize, fabric.LocalWrite); err != nil {
		return 0, err
	}
	if c.cq, err = c.dom.NewCQ(batchSize, 0); err != nil {
		return 0, err
	}
	qp, err := c.dom.NewQP(fabric.QPConfig{
		Transport: fabric.RC, SendCQ: c.cq, RecvCQ: c.cq, MaxSend: batchSize, MaxRecv: 1, MaxRdAtomic: uint8(reads),
	})
	if err != nil {
		return 0, err
	}
	c.qp = qp
	b, err := l.call(ctx, l.joining, func(transaction uint64) []byte {
		ask.TransactionContext, ask.End = transaction, endOf(qp.Address(), reads)
		return protocol.AppendDirectedConnect(nil, ask)
	})
	if err != nil {
		return 0, err
	}
	answer, err := protocol.DecodeDirectedConnected(b)
	if err != nil {
		return 0, err
	}
	if answer.Status != protocol.DirectedOK {
		return 0, &StatusError{Status: answer.Status}
	}
	if granted = int(answer.End.Reads); granted < reads {
		return granted, nil
	}
	return granted, qp.Connect(addressOf(answer.End), u.cfg.Timing)
}

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
