package directed

import (
	"context"
	"errors"
	"fmt"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
)

// judge checks a complete list. All of its elements have to be memory of units for which allowed
// returns true, or data to be written to the I/O device.
func judge(
	list *protocol.ListDecoder, r *protocol.DirectedRequest, allowed func(protocol.Platform) bool,
) protocol.DirectedStatus {
	last := r.Requester // of which it is known that it is allowed
	for e := range list.Elements() {
		switch {
		case e.Data != nil && r.Operation == protocol.DirectedRead:
			return protocol.DirectedInvalid
		case e.Data != nil || e.Platform == last:
			continue
		case e.Platform != r.Requester && !allowed(e.Platform):
			return protocol.DirectedPlatform
		}
		last = e.Platform
	}
	return protocol.DirectedOK
}

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

	c    *connection // that of the current part
	at   int64       // offset of the current part on the I/O device
	fill int         // size of the current part in bytes
}

// execute moves the data of a request, within Config.Timeout. l is the link with the owner, or with
// the requester if this node is the owner. An owner that waits for twice as long ends the link,
// which also has the requests of other requesters.
func (u *unit) execute(
	l *Link, r *protocol.DirectedRequest, s Storage, h holder,
) (protocol.DirectedStatus, uint64) {
	ctx, cancel := context.WithTimeout(l.ctx, u.cfg.Timeout)
	defer cancel()
	m := &mover{
		ctx: ctx, unit: u, owner: l.peer, r: r, storage: s, holder: h, at: int64(r.Offset),
		conns: make(map[protocol.Platform]*connection),
	}
	status := m.run()
	m.release(status)
	return status, uint64(m.at - int64(r.Offset))
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

// run reads the rest of the list, checks the list, and moves the data.
func (m *mover) run() protocol.DirectedStatus {
	list := protocol.ListDecoder{Local: m.r.Requester}
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
	if s := judge(&list, m.r, func(protocol.Platform) bool { return true }); s != protocol.DirectedOK {
		return s
	}
	if err := m.connect(&list); err != nil {
		return statusOf(err)
	}
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
	if m.c != nil {
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
	err = post(m.ctx, m.c.qp, m.c.cq, []fabric.SendWR{{
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

// flush moves the current part and begins the next one.
func (m *mover) flush() error {
	if err := m.ctx.Err(); err != nil {
		return err
	}
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
