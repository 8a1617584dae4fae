package directed

import (
	"context"
	"errors"
	"fmt"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
)

// judge checks a complete list. All of its elements have to be memory of the requester, or
// data to be written to the I/O device.
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

// mover carries out one request. The current part of the data is in the staging memory, in
// the order of the list.
type mover struct {
	ctx     context.Context
	c       *connection
	r       *protocol.DirectedRequest
	storage Storage
	at      int64 // offset of the current part on the I/O device
	fill    int   // size of the current part in bytes
}

// errStorage is wrapped by errors of the I/O device.
var errStorage = errors.New("I/O device")

// run reads the rest of the list, checks the list, and moves the data.
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

// fetch reads a sequence of the list from the requester's memory. It reads the sequence once,
// and returns a copy that the requester cannot change.
func (m *mover) fetch(chain protocol.Fragment) ([]byte, error) {
	st := m.c.staging
	err := post(m.ctx, m.c.qp, m.c.cq, []fabric.SendWR{{
		Op: fabric.OpRead, Flags: fabric.Signaled, Addr: st.Addr(), LKey: st.LKey(), Len: chain.Len,
		RemoteAddr: chain.Addr, RKey: chain.Handle,
	}})
	return append([]byte(nil), st.mem[:chain.Len]...), err
}

// add adds an element to the current part, and moves the part whenever it is full.
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
	switch {
	case errors.Is(err, errStorage):
		return protocol.DirectedFailed
	case errors.Is(err, &fabric.WCError{Status: fabric.StatusRemAccessErr}),
		errors.Is(err, &fabric.WCError{Status: fabric.StatusRemInvReqErr}):
		return protocol.DirectedAccess
	}
	return protocol.DirectedUnreachable
}
