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

// unit is the part of an I/O unit: it moves data between its devices and requesters.
type unit struct {
	cfg *Config

	mu    sync.Mutex // guards what follows
	conns map[protocol.Platform]*connection
	clock uint64 // of the last use of a connection
}

// connections is how many there are, and how many have been made.
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

// close closes the connections.
func (u *unit) close() error {
	u.mu.Lock()
	conns := u.conns
	u.conns = make(map[protocol.Platform]*connection)
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

// acquire returns the place of the connection with a requester, locked.
func (u *unit) acquire(p protocol.Platform) *connection {
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

// evict makes room for a connection: the one that was used least recently, of those
// that are not in use, is closed; unit.mu is held.
func (u *unit) evict() {
	for len(u.conns) >= u.cfg.MaxConnections {
		var oldest *connection
		var of protocol.Platform
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
			return // each of them is in use by a request, of which each link has one
		}
		oldest.gone = true
		_ = oldest.reset() // nobody uses it
		oldest.mu.Unlock()
		delete(u.conns, of)
	}
}

// join connects c to the requester by way of the link; c.mu is held.
func (u *unit) join(ctx context.Context, l *Link, c *connection, to protocol.Platform) error {
	if c.qp != nil {
		failed, err := c.qp.Failed()
		if err == nil && !failed {
			return nil
		}
		if err := c.reset(); err != nil {
			return err
		}
	}
	reads := min(wantedReads, u.cfg.Device.Limits().MaxRdAtomic)
	for {
		granted, err := u.connectTo(ctx, l, c, to, reads)
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

// connectTo makes a queue pair for so many reads, and returns how many the
// requester grants. If these are fewer the queue pair is not connected.
func (u *unit) connectTo(
	ctx context.Context, l *Link, c *connection, to protocol.Platform, reads int,
) (granted int, err error) {
	if c.dom, err = u.cfg.Device.NewDomain(); err != nil {
		return 0, err
	}
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
		return protocol.AppendDirectedConnect(nil, protocol.DirectedConnect{
			TransactionContext: transaction, From: u.cfg.Platform, To: to, End: endOf(qp.Address(), reads),
		})
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

// execute moves the data of a request that came by link l, within Config.Timeout: an owner that
// waits for twice as long ends the link, which carries the requests of others too.
func (u *unit) execute(l *Link, r *protocol.DirectedRequest, s Storage) (protocol.DirectedStatus, uint64) {
	ctx, cancel := context.WithTimeout(l.ctx, u.cfg.Timeout)
	defer cancel()
	c := u.acquire(r.Requester)
	defer c.mu.Unlock()
	if err := u.join(ctx, l, c, r.Requester); err != nil {
		return protocol.DirectedUnreachable, 0
	}
	m := &mover{ctx: ctx, c: c, r: r, storage: s, at: int64(r.Offset)}
	status := m.run()
	if status == protocol.DirectedAccess || status == protocol.DirectedUnreachable {
		_ = c.reset() // a queue pair in the error state; another is made at the next request
	}
	return status, uint64(m.at - int64(r.Offset))
}
