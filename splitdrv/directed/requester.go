package directed

import (
	"context"
	"fmt"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
)

// Request describes transactions for Do, which an I/O unit carries out one after the other until
// one fails.
type Request struct {
	Device       uint32 // the owner's number of the I/O device
	Transactions []Transaction
}

// Transaction is one transaction of a request. The last element of Source ends a buffer, and so does
// that of Results.
type Transaction struct {
	Operation protocol.DirectedOperation
	Offset    uint64                 // on the I/O device, in bytes
	Source    []protocol.ListElement // buffers with the data for the I/O device
	Results   []protocol.ListElement // buffers for the data from it
}

// Do sends the owner at the other end of the link a request, and waits for the answer. A
// *StatusError has the number of transactions that were carried out. After any other error, an I/O
// unit may still access the memory until the Memory is closed, and the next request waits
// until this one is answered.
func (l *Link) Do(ctx context.Context, r Request) error {
	message, chain, err := l.message(&r)
	if err != nil {
		return err
	}
	if chain != nil {
		defer chain.Close()
	}
	// The owner would end the link.
	if _, err := protocol.DecodeDirectedRequest(protocol.AppendDirectedRequest(nil, message)); err != nil {
		return err
	}
	l.waits(1)
	defer l.waits(-1)
	b, err := l.call(ctx, l.asking, func(transaction uint64) []byte {
		message.TransactionContext = transaction
		return protocol.AppendDirectedRequest(nil, message)
	})
	if err != nil {
		return err
	}
	reply, err := l.reply(b, &message)
	if err != nil {
		return err
	}
	if reply.Status != protocol.DirectedOK {
		return &StatusError{Status: reply.Status, Done: int(reply.Done), Bytes: reply.Bytes}
	}
	return nil
}

// message makes the message of a request. chain is memory with the rest of the list, or nil.
func (l *Link) message(r *Request) (q protocol.DirectedRequest, chain *pinned, err error) {
	var list []protocol.ListElement
	for i := range r.Transactions {
		t := &r.Transactions[i]
		list = append(append(list, t.Source...), t.Results...)
	}
	if len(list) > protocol.MaxListElements {
		return q, nil, fmt.Errorf("a list of %d elements: %w", len(list), protocol.ErrCount)
	}
	q.Device = r.Device
	for i := range r.Transactions {
		t := &r.Transactions[i]
		q.Transactions = append(q.Transactions, protocol.DirectedTransaction{
			Operation: t.Operation, Offset: t.Offset, Source: buffersOf(t.Source), Results: buffersOf(t.Results),
		})
	}
	if len(list) != 0 {
		q.List, chain, err = l.sequences(list, protocol.MaxDirectedList(len(r.Transactions)))
	}
	return q, chain, err
}

func buffersOf(elements []protocol.ListElement) protocol.DirectedBuffers {
	a := protocol.AttributesOf(elements)
	return protocol.DirectedBuffers{Count: uint16(a.Buffers), Bytes: a.Bytes}
}

// reply decodes the reply to a request. It ends the link if the reply claims what cannot be: more
// than the request asks for, success for a part of it, or another number of bytes than the
// transactions have.
func (l *Link) reply(b []byte, r *protocol.DirectedRequest) (protocol.DirectedReply, error) {
	reply, err := protocol.DecodeDirectedReply(b)
	if err == nil {
		err = reply.Suits(r)
	}
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrProtocol, err)
		l.fail(err)
	}
	return reply, err
}

func (l *Link) waits(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.doing += n
}

// sequences makes the sequences of a list. It returns the first one, and memory with the others,
// which do not fit the message. The chain pointers to them are in the first one. chain is nil if the
// whole list fits. room is the size of the largest first sequence.
func (l *Link) sequences(list []protocol.ListElement, room int) (first []byte, chain *pinned, err error) {
	for i := range list {
		if n := len(list[i].Data); n > protocol.MaxListImmediate {
			return nil, nil, fmt.Errorf("%d bytes of data in an element: %w", n, protocol.ErrSize)
		}
	}
	a := protocol.AttributesOf(list)
	head, parts := cut(protocol.NameOnce(list, l.cfg.Platform), room)
	if parts == nil {
		return protocol.AppendListSequence(nil, &a, nil, head), nil, nil
	}
	if len(parts)+1 > protocol.MaxListSequences {
		return nil, nil, fmt.Errorf("a list in %d sequences: %w", len(parts)+1, protocol.ErrCount)
	}
	own, err := l.space(l.cfg.Platform)
	if err != nil {
		return nil, nil, err
	}
	chain, err = pin(own.dom, len(parts)*protocol.MaxListSequence, fabric.RemoteRead)
	if err != nil {
		return nil, nil, err
	}
	pointers := make([]protocol.Fragment, len(parts))
	for i, part := range parts {
		at := i * protocol.MaxListSequence
		b := protocol.AppendListSequence(chain.mem[at:at], nil, nil, part)
		pointers[i] = protocol.Fragment{
			Platform: l.cfg.Platform, Handle: chain.RKey(), Addr: chain.Addr() + uint64(at), Len: uint32(len(b)),
		}
	}
	return protocol.AppendListSequence(nil, &a, pointers, head), chain, nil
}

// cut divides a list into the elements that fit the first sequence together with chain pointers to
// the parts, and the parts. The fewer parts there are, the more elements fit it.
func cut(list []protocol.ListElement, room int) (head []protocol.ListElement, parts [][]protocol.ListElement) {
	for pointers := 0; ; pointers++ {
		n := protocol.ListFits(list, room-protocol.ListAttributesSize-pointers*protocol.ListFragmentSize)
		head, parts = list[:n], nil
		for rest := list[n:]; len(rest) != 0; rest = rest[n:] {
			n = protocol.ListFits(rest, protocol.MaxListSequence)
			parts = append(parts, rest[:n])
		}
		if len(parts) <= pointers || pointers == protocol.MaxListSequences {
			return head, parts
		}
	}
}
