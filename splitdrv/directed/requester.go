package directed

import (
	"context"
	"errors"
	"fmt"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
)

// Memory is registered memory of the requester, which can be named in lists until Close.
type Memory struct {
	region   fabric.Region
	platform protocol.Platform
}

// Register makes mem accessible to the I/O units that the owner at the other end directs. They
// can write mem if op reads from an I/O device, and read mem if op writes to one. mem has to
// be outside the Go heap, and to stay mapped until the Memory is closed.
func (l *Link) Register(mem []byte, op protocol.DirectedOperation) (*Memory, error) {
	access := fabric.LocalWrite | fabric.RemoteWrite
	if op == protocol.DirectedWrite {
		access = fabric.RemoteRead
	}
	r, err := l.space.Register(mem, access)
	if err != nil {
		return nil, err
	}
	return &Memory{region: r, platform: l.cfg.Platform}, nil
}

// Fragment returns the list fragment for a part of the memory.
func (m *Memory) Fragment(offset, length int) protocol.Fragment {
	return protocol.Fragment{
		Platform: m.platform, Handle: m.region.RKey(), Addr: m.region.Addr() + uint64(offset), Len: uint32(length),
	}
}

// Close revokes the memory: from then on the device refuses its handle.
func (m *Memory) Close() error { return m.region.Close() }

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
	l.waits(1)
	defer l.waits(-1)
	b, err := l.call(ctx, l.asking, func(transaction uint64) []byte {
		return protocol.AppendDirectedRequest(nil, protocol.DirectedRequest{
			TransactionContext: transaction, Operation: r.Operation, Device: r.Device, Offset: r.Offset, List: first,
		})
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

// sequences makes the sequences of a list. It returns the first one, and memory with the
// others, which do not fit the message and are linked by chain pointers. chain is nil if the
// whole list fits.
func (l *Link) sequences(list []protocol.ListElement) (first []byte, chain *pinned, err error) {
	a := protocol.AttributesOf(list)
	room := protocol.MaxDirectedList - protocol.ListAttributesSize
	if protocol.ListFits(list, room) == len(list) {
		return protocol.AppendListSequence(nil, &a, nil, list), nil, nil
	}
	n := protocol.ListFits(list, room-protocol.ListFragmentSize)
	head, parts := list[:n], [][]protocol.ListElement(nil)
	for rest := list[n:]; len(rest) != 0; rest = rest[n:] {
		n = protocol.ListFits(rest, protocol.MaxListSequence-protocol.ListFragmentSize)
		parts = append(parts, rest[:n])
	}
	if len(parts)+1 > protocol.MaxListSequences || len(list) > protocol.MaxListElements {
		return nil, nil, fmt.Errorf("a list of %d elements in %d sequences: %w", len(list), len(parts)+1,
			protocol.ErrCount)
	}
	chain, err = pin(l.space, len(parts)*protocol.MaxListSequence, fabric.RemoteRead)
	if err != nil {
		return nil, nil, err
	}
	// The last sequence is made first, because a chain pointer has the length of the next one.
	var next *protocol.Fragment
	for i := len(parts) - 1; i >= 0; i-- {
		at := i * protocol.MaxListSequence
		b := protocol.AppendListSequence(chain.mem[at:at], nil, next, parts[i])
		next = &protocol.Fragment{
			Platform: l.cfg.Platform, Handle: chain.RKey(), Addr: chain.Addr() + uint64(at), Len: uint32(len(b)),
		}
	}
	return protocol.AppendListSequence(nil, &a, next, head), chain, nil
}

// errTooMany is the error if an owner's I/O units have MaxConnections connections already.
var errTooMany = errors.New("connections with too many I/O units")

// accept makes this side's end of a connection by which an I/O unit reaches the memory that
// was registered with the link. It replaces an earlier connection of this I/O unit.
func (l *Link) accept(c protocol.DirectedConnect) (protocol.DirectedEnd, error) {
	l.mu.Lock()
	old, again := l.open[c.From]
	delete(l.open, c.From)
	full := len(l.open) >= l.cfg.MaxConnections
	l.mu.Unlock()
	if again {
		if err := old.close(); err != nil {
			return protocol.DirectedEnd{}, err
		}
	}
	if full {
		return protocol.DirectedEnd{}, errTooMany
	}
	reads := min(int(c.End.Reads), l.cfg.Device.Limits().MaxDestRdAtomic)
	var a answering
	var err error
	if a.cq, err = l.space.NewCQ(1, 0); err != nil {
		return protocol.DirectedEnd{}, err
	}
	a.qp, err = l.space.NewQP(fabric.QPConfig{
		Transport: fabric.RC, SendCQ: a.cq, RecvCQ: a.cq, MaxSend: 1, MaxRecv: 1, MaxDestRdAtomic: uint8(reads),
	})
	if err != nil {
		return protocol.DirectedEnd{}, errors.Join(err, a.cq.Close())
	}
	if err := a.qp.Connect(addressOf(c.End), l.cfg.Timing); err != nil {
		return protocol.DirectedEnd{}, errors.Join(err, a.close())
	}
	l.mu.Lock()
	l.open[c.From] = a
	l.mu.Unlock()
	return endOf(a.qp.Address(), reads), nil
}
