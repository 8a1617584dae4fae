package directed

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
)

// holder returns the link by which messages reach a unit with memory, or nil if the list must not
// name this unit's memory.
type holder func(protocol.Platform) *Link

// mover carries out one request. The current part of the data is in the staging memory of one
// connection, in the order of the list.
type mover struct {
	ctx     context.Context
	unit    *unit
	owner   protocol.Platform
	r       *protocol.DirectedRequest
	storage Storage
	holder  holder
	conns   map[protocol.Platform]*connection // by the platform identifiers in the list

	done  int    // number of transactions that are complete
	bytes uint64 // moved by all transactions

	op     fabric.Opcode // of the current buffers: RDMA read of source data, or RDMA write of results
	device Storage       // what their data are for or from
	at     int64         // offset of the current part there
	c      *connection   // that of the current part
	fill   int           // size of the current part in bytes
}

// execute carries out the transactions of a request, one after the other until one fails, within
// Config.Timeout. l is the link with the owner, or with the requester if this node is the owner. An
// owner that waits for twice as long ends the link, which also has the requests of other requesters.
func (u *unit) execute(l *Link, r *protocol.DirectedRequest, s Storage, h holder) protocol.DirectedReply {
	ctx, cancel := context.WithTimeout(l.ctx, u.cfg.Timeout)
	defer cancel()
	m := &mover{
		ctx: ctx, unit: u, owner: l.peer, r: r, storage: s, holder: h,
		conns: make(map[protocol.Platform]*connection),
	}
	status := m.run()
	m.release(status)
	return protocol.DirectedReply{Status: status, Done: uint32(m.done), Bytes: m.bytes}
}

// connection returns the connection by which the memory of a unit is reached. The one with the
// requester may be there already. One with another unit is made for this request, so that the owner
// and the other unit are asked each time.
func (m *mover) connection(of protocol.Platform) (*connection, error) {
	if c := m.conns[of]; c != nil {
		return c, nil
	}
	l := m.holder(of)
	if l == nil {
		return nil, &StatusError{Status: protocol.DirectedPlatform}
	}
	if len(m.conns) == m.unit.cfg.MaxConnections {
		return nil, fmt.Errorf("memory of more than %d units: %w", len(m.conns), errTooMany)
	}
	c := &connection{}
	if of == m.r.Requester {
		c = m.unit.acquire(peers{m.owner, of})
		c.wrs = c.wrs[:0]
	}
	m.conns[of] = c
	return c, m.unit.join(m.ctx, l, c, of, m.r.Requester)
}

// release gives up the connections. That with the requester is kept for later requests.
func (m *mover) release(status protocol.DirectedStatus) {
	for of, c := range m.conns {
		failed := status == protocol.DirectedAccess || status == protocol.DirectedUnreachable
		if of != m.r.Requester || failed && c == m.c {
			_ = c.reset() // a queue pair in the error state, with a part that may be under way
		}
		if of == m.r.Requester {
			c.mu.Unlock()
		}
	}
}

// errStorage is wrapped by errors of the I/O device.
var errStorage = errors.New("I/O device")

// run reads the rest of the list, checks the request, and carries out the transactions.
func (m *mover) run() protocol.DirectedStatus {
	if !m.supported() {
		return protocol.DirectedUnsupported
	}
	list := protocol.ListDecoder{Local: m.r.Requester}
	sequence, more := m.r.List, len(m.r.List) != 0
	for more {
		var chain protocol.Fragment
		var err error
		chain, more, err = list.Add(sequence)
		switch {
		case err != nil:
			return protocol.DirectedInvalid
		case !more:
			continue
		case chain.Platform != m.r.Requester:
			return protocol.DirectedPlatform
		}
		if sequence, err = m.fetch(chain); err != nil {
			return statusOf(err)
		}
	}
	if err := protocol.MatchDirected(m.r.Transactions, &list); err != nil {
		return protocol.DirectedInvalid
	}
	if err := m.connect(&list); err != nil {
		return statusOf(err)
	}
	next, stop := iter.Pull(list.Elements())
	defer stop()
	for i := range m.r.Transactions {
		if err := m.carryOut(&m.r.Transactions[i], next); err != nil {
			return statusOf(err)
		}
		m.done++
	}
	return protocol.DirectedOK
}

// supported reports whether the I/O device has the operations of all transactions.
func (m *mover) supported() bool {
	if _, ok := m.storage.(Exchanger); ok {
		return true
	}
	return !slices.ContainsFunc(m.r.Transactions, func(t protocol.DirectedTransaction) bool {
		return t.Operation == protocol.DirectedExchange
	})
}

// carryOut carries out a transaction. next returns the next element of the list, which conforms to
// the transactions.
func (m *mover) carryOut(t *protocol.DirectedTransaction, next func() (protocol.ListElement, bool)) error {
	offset := int64(t.Offset)
	switch t.Operation {
	case protocol.DirectedRead:
		return m.move(fabric.OpWrite, m.storage, offset, t.Results, next)
	case protocol.DirectedWrite:
		return m.move(fabric.OpRead, m.storage, offset, t.Source, next)
	default: // an exchange
	}
	source, results := make(held, t.Source.Bytes), make(held, t.Results.Bytes)
	if err := m.move(fabric.OpRead, source, 0, t.Source, next); err != nil {
		return err
	}
	if err := m.storage.(Exchanger).Exchange(results, source, offset); err != nil {
		return fmt.Errorf("%w: %w", errStorage, err)
	}
	return m.move(fabric.OpWrite, results, 0, t.Results, next)
}

// held has the source data or the results of an exchange, in the role of the I/O device.
type held []byte

func (h held) ReadAt(b []byte, at int64) (int, error)  { return copy(b, h[at:]), nil }
func (h held) WriteAt(b []byte, at int64) (int, error) { return copy(h[at:], b), nil }

// move moves the data of the source buffers or the result buffers of a transaction, to or from
// device at an offset.
func (m *mover) move(
	op fabric.Opcode, device Storage, at int64, b protocol.DirectedBuffers, next func() (protocol.ListElement, bool),
) error {
	m.op, m.device, m.at = op, device, at
	for left := b.Count; left != 0; {
		e, _ := next()
		if err := m.add(&e); err != nil {
			return err
		}
		if e.EndOfBuffer {
			left--
		}
	}
	return m.flush()
}

// connect makes the connections for all elements of a list.
func (m *mover) connect(list *protocol.ListDecoder) error {
	for e := range list.Elements() {
		if e.Data != nil {
			continue
		}
		c, err := m.connection(e.Platform)
		if err != nil {
			return err
		}
		if m.c == nil {
			m.c = c
		}
	}
	if m.c != nil || list.Attributes().Elements == 0 {
		return nil
	}
	var err error // the list has only data, which pass through staging memory too
	m.c, err = m.connection(m.r.Requester)
	return err
}

// fetch reads a sequence of the list from the requester's memory. It reads the sequence once,
// and returns a copy that the requester cannot change.
func (m *mover) fetch(chain protocol.Fragment) ([]byte, error) {
	var err error
	if m.c, err = m.connection(chain.Platform); err != nil {
		return nil, err
	}
	st := m.c.staging
	err = m.post([]fabric.SendWR{{
		Op: fabric.OpRead, Flags: fabric.Signaled, Addr: st.Addr(), LKey: st.LKey(), Len: chain.Len,
		RemoteAddr: chain.Addr, RKey: chain.Handle,
	}})
	return append([]byte(nil), st.mem[:chain.Len]...), err
}

// add adds an element to the current part, and moves the part whenever it is full. A part does not
// have memory of two units.
func (m *mover) add(e *protocol.ListElement) error {
	if c := m.conns[e.Platform]; e.Data == nil && c != m.c {
		if err := m.flush(); err != nil {
			return err
		}
		m.c = c
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
				Op: m.op, Addr: m.c.staging.Addr() + uint64(m.fill), LKey: m.c.staging.LKey(), Len: uint32(n),
				RemoteAddr: e.Addr + uint64(done), RKey: e.Handle,
			})
		}
		m.fill += int(n)
		done += n
	}
	return nil
}

// flush moves the current part and begins the next one.
func (m *mover) flush() error {
	if err := m.ctx.Err(); err != nil {
		return err
	}
	if m.fill == 0 {
		return nil
	}
	data := m.c.staging.mem[:m.fill]
	if m.op == fabric.OpWrite {
		if n, err := m.device.ReadAt(data, m.at); n < len(data) {
			return fmt.Errorf("%w: %w", errStorage, err)
		}
	}
	if n := len(m.c.wrs); n != 0 {
		m.c.wrs[n-1].Flags = fabric.Signaled
		if err := m.post(m.c.wrs); err != nil {
			return err
		}
	}
	if m.op == fabric.OpRead {
		if _, err := m.device.WriteAt(data, m.at); err != nil {
			return fmt.Errorf("%w: %w", errStorage, err)
		}
	}
	m.at += int64(m.fill)
	m.bytes += uint64(m.fill)
	m.fill, m.c.wrs = 0, m.c.wrs[:0]
	return nil
}

// post is post on the connection of the current part. It ends when that fails.
func (m *mover) post(wrs []fabric.SendWR) error {
	ctx, cancel := context.WithCancelCause(m.ctx)
	defer cancel(nil)
	defer context.AfterFunc(m.c.life, func() { cancel(context.Cause(m.c.life)) })()
	err := post(ctx, m.c.qp, m.c.cq, wrs, m.unit.cfg.look)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// statusOf returns the status that the requester gets for an error.
func statusOf(err error) protocol.DirectedStatus {
	var answer *StatusError
	switch {
	case errors.As(err, &answer) && answer.Status != protocol.DirectedOK:
		return answer.Status
	case errors.Is(err, errStorage):
		return protocol.DirectedFailed
	case errors.Is(err, &fabric.WCError{Status: fabric.StatusRemAccessErr}),
		errors.Is(err, &fabric.WCError{Status: fabric.StatusRemInvReqErr}):
		return protocol.DirectedAccess
	}
	return protocol.DirectedUnreachable
}
