package directed

import (
	"context"
	"errors"
	"fmt"
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
	used uint64 // guarded by Node.mu

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

// acquire returns the place of the connection with a requester, locked.
func (n *Node) acquire(p protocol.Platform) *connection {
	for {
		n.mu.Lock()
		c := n.conns[p]
		if c == nil {
			n.evict()
			c = &connection{}
			n.conns[p] = c
		}
		n.clock++
		c.used = n.clock
		n.mu.Unlock()
		c.mu.Lock()
		if !c.gone {
			return c
		}
		c.mu.Unlock()
	}
}

// evict makes room for a connection: the one that was used least recently, of those
// that are not in use, is closed; Node.mu is held.
func (n *Node) evict() {
	for len(n.conns) >= n.cfg.MaxConnections {
		var oldest *connection
		var of protocol.Platform
		for p, c := range n.conns {
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
		delete(n.conns, of)
	}
}

// join connects c to the requester by way of the link; c.mu is held.
func (n *Node) join(l *Link, c *connection, to protocol.Platform) error {
	if c.qp != nil {
		failed, err := c.qp.Failed()
		if err == nil && !failed {
			return nil
		}
		if err := c.reset(); err != nil {
			return err
		}
	}
	reads := min(wantedReads, n.cfg.Device.Limits().MaxRdAtomic)
	for {
		granted, err := n.connectTo(l, c, to, reads)
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
func (n *Node) connectTo(l *Link, c *connection, to protocol.Platform, reads int) (granted int, err error) {
	if c.dom, err = n.cfg.Device.NewDomain(); err != nil {
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
	b, err := l.call(l.ctx, l.joining, func(transaction uint64) []byte {
		return protocol.AppendDirectedConnect(nil, protocol.DirectedConnect{
			TransactionContext: transaction, From: n.cfg.Platform, To: to, End: endOf(qp.Address(), reads),
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
	return granted, qp.Connect(addressOf(answer.End), n.cfg.Timing)
}

// judge checks a list that is whole: all of it is the requester's memory, or data
// to be written.
func judge(list *protocol.ListDecoder, r *protocol.DirectedRequest) protocol.DirectedStatus {
	for e := range list.Elements() {
		switch {
		case e.Data != nil && r.Operation == protocol.DirectedRead:
			return protocol.DirectedInvalid
		case e.Data == nil && e.Platform != r.Requester:
			return protocol.DirectedPlatform
		}
	}
	return protocol.DirectedOK
}

// execute moves the data of a request that came by link l.
func (n *Node) execute(l *Link, r *protocol.DirectedRequest, s Storage) (protocol.DirectedStatus, uint64) {
	c := n.acquire(r.Requester)
	defer c.mu.Unlock()
	if err := n.join(l, c, r.Requester); err != nil {
		return protocol.DirectedUnreachable, 0
	}
	m := &mover{ctx: l.ctx, c: c, r: r, storage: s, at: int64(r.Offset)}
	status := m.run()
	if status == protocol.DirectedAccess || status == protocol.DirectedUnreachable {
		_ = c.reset() // a queue pair in the error state; another is made at the next request
	}
	return status, uint64(m.at - int64(r.Offset))
}

// mover carries out one request. What is at hand of it lies in the staging memory,
// in the order of the buffers.
type mover struct {
	ctx     context.Context
	c       *connection
	r       *protocol.DirectedRequest
	storage Storage
	at      int64 // how far on the I/O device
	fill    int   // bytes at hand
}

// errStorage is wrapped by errors of the I/O device.
var errStorage = errors.New("I/O device")

// run reads what there is of the list, judges it, and moves the data.
func (m *mover) run() protocol.DirectedStatus {
	var list protocol.ListDecoder
	sequence := m.r.List
	for {
		chain, more, err := list.Add(sequence)
		if err != nil {
			return protocol.DirectedInvalid
		}
		if !more {
			break
		}
		if chain.Platform != m.r.Requester {
			return protocol.DirectedPlatform
		}
		if sequence, err = m.fetch(chain); err != nil {
			return statusOf(err)
		}
	}
	if s := judge(&list, m.r); s != protocol.DirectedOK {
		return s
	}
	m.c.wrs = m.c.wrs[:0]
	for e := range list.Elements() {
		if err := m.add(&e); err != nil {
			return statusOf(err)
		}
	}
	if err := m.flush(); err != nil {
		return statusOf(err)
	}
	return protocol.DirectedOK
}

// fetch reads a sequence of the list in the requester's memory: once, to where the
// requester cannot change it.
func (m *mover) fetch(chain protocol.Fragment) ([]byte, error) {
	st := m.c.staging
	err := post(m.ctx, m.c.qp, m.c.cq, []fabric.SendWR{{
		Op: fabric.OpRead, Flags: fabric.Signaled, Addr: st.Addr(), LKey: st.LKey(), Len: chain.Len,
		RemoteAddr: chain.Addr, RKey: chain.Handle,
	}})
	return append([]byte(nil), st.mem[:chain.Len]...), err
}

// add takes an element, and moves what is at hand whenever that is enough.
func (m *mover) add(e *protocol.ListElement) error {
	op := fabric.OpWrite
	if m.r.Operation == protocol.DirectedWrite {
		op = fabric.OpRead
	}
	for done := int64(0); done < e.Bytes(); {
		if m.fill == stagingSize || len(m.c.wrs) == batchSize {
			if err := m.flush(); err != nil {
				return err
			}
		}
		n := min(e.Bytes()-done, int64(stagingSize-m.fill))
		if e.Data != nil {
			copy(m.c.staging.mem[m.fill:], e.Data[done:done+n])
		} else {
			m.c.wrs = append(m.c.wrs, fabric.SendWR{
				Op: op, Addr: m.c.staging.Addr() + uint64(m.fill), LKey: m.c.staging.LKey(), Len: uint32(n),
				RemoteAddr: e.Addr + uint64(done), RKey: e.Handle,
			})
		}
		m.fill += int(n)
		done += n
	}
	return nil
}

// flush moves what is at hand.
func (m *mover) flush() error {
	data := m.c.staging.mem[:m.fill]
	if m.r.Operation == protocol.DirectedRead && m.fill != 0 {
		if n, err := m.storage.ReadAt(data, m.at); n < len(data) {
			return fmt.Errorf("%w: %w", errStorage, err)
		}
	}
	if n := len(m.c.wrs); n != 0 {
		m.c.wrs[n-1].Flags = fabric.Signaled
		if err := post(m.ctx, m.c.qp, m.c.cq, m.c.wrs); err != nil {
			return err
		}
	}
	if m.r.Operation == protocol.DirectedWrite && m.fill != 0 {
		if _, err := m.storage.WriteAt(data, m.at); err != nil {
			return fmt.Errorf("%w: %w", errStorage, err)
		}
	}
	m.at += int64(m.fill)
	m.fill, m.c.wrs = 0, m.c.wrs[:0]
	return nil
}

// statusOf is what the requester is told of an error.
func statusOf(err error) protocol.DirectedStatus {
	switch {
	case errors.Is(err, errStorage):
		return protocol.DirectedFailed
	case errors.Is(err, &fabric.WCError{Status: fabric.StatusRemAccessErr}),
		errors.Is(err, &fabric.WCError{Status: fabric.StatusRemInvReqErr}):
		return protocol.DirectedAccess
	}
	return protocol.DirectedUnreachable
}
