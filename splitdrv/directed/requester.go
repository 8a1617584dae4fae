package directed

import (
	"context"
	"fmt"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
)

// Request describes a transfer for Do.
type Request struct {
	Operation protocol.DirectedOperation
	Device    uint32 // the owner's number of the I/O device
	Offset    uint64 // on the I/O device, in bytes
	List      []protocol.ListElement
}

// Do sends the owner at the other end of the link a request, and waits for the answer. A
// *StatusError has the number of bytes that were transferred. After any other error, an I/O
// unit may still access the memory until the Memory is closed, and the next request waits
// until this one is answered.
func (l *Link) Do(ctx context.Context, r Request) error {
	first, chain, err := l.sequences(r.List)
	if err != nil {
		return err
	}
	if chain != nil {
		defer chain.Close()
	}
	message := protocol.DirectedRequest{Operation: r.Operation, Device: r.Device, Offset: r.Offset, List: first}
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
	reply, err := protocol.DecodeDirectedReply(b)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	if reply.Status != protocol.DirectedOK {
		return &StatusError{Status: reply.Status, Bytes: reply.Bytes}
	}
	return nil
}

func (l *Link) waits(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.doing += n
}

// sequences makes the sequences of a list. It returns the first one, and memory with the others,
// which do not fit the message. The chain pointers to them are in the first one. chain is nil if the
// whole list fits.
func (l *Link) sequences(list []protocol.ListElement) (first []byte, chain *pinned, err error) {
	if len(list) > protocol.MaxListElements {
		return nil, nil, fmt.Errorf("a list of %d elements: %w", len(list), protocol.ErrCount)
	}
	for i := range list {
		if n := len(list[i].Data); n > protocol.MaxListImmediate {
			return nil, nil, fmt.Errorf("%d bytes of data in an element: %w", n, protocol.ErrSize)
		}
	}
	a := protocol.AttributesOf(list)
	head, parts := cut(protocol.NameOnce(list, l.cfg.Platform))
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

// cut divides a list into the elements that fit the message together with chain pointers to the
// parts, and the parts. The fewer parts there are, the more elements fit the message.
func cut(list []protocol.ListElement) (head []protocol.ListElement, parts [][]protocol.ListElement) {
	for pointers := 0; ; pointers++ {
		room := protocol.MaxDirectedList - protocol.ListAttributesSize - pointers*protocol.ListFragmentSize
		n := protocol.ListFits(list, room)
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
