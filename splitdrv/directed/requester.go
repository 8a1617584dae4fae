package directed

import (
	"context"
	"errors"
	"fmt"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
)

// Memory is memory of the requester that can be named in lists, until it is closed.
type Memory struct {
	region   fabric.Region
	platform protocol.Platform
}

// Register opens mem to those whom the owner at the other end directs: to be
// written for a read from an I/O device, or else to be read for a write to it. mem
// lies outside the Go heap, and stays mapped until the Memory is closed.
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

// Fragment names a part of the memory.
func (m *Memory) Fragment(offset, length int) protocol.Fragment {
	return protocol.Fragment{
		Platform: m.platform, Handle: m.region.RKey(), Addr: m.region.Addr() + uint64(offset), Len: uint32(length),
	}
}

// Close revokes the memory: the device refuses the handle from then on.
func (m *Memory) Close() error { return m.region.Close() }

// Request is what Do asks for.
type Request struct {
	Operation protocol.DirectedOperation
	Device    uint32 // the owner's number of the I/O device
	Offset    uint64 // on it, in bytes
	List      []protocol.ListElement
}

// Do asks the owner at the other end of the link for a transfer, and waits for the
// answer. A *StatusError says how far it got. After any other error somebody may be
// at the memory until it is closed; and the next request waits until this one is
// answered.
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

// sequences makes the sequences of a list: the first one, and memory with those
// that do not fit the message, to which chain pointers lead; nil if all of it fits.
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
	// The last one first: a chain pointer says how long the next one is.
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

// errTooMany is why no connection is made for another I/O unit.
var errTooMany = errors.New("connections with too many I/O units")

// accept makes this side's end of a connection by which an I/O unit reaches what was
// registered with the link. It takes the place of an earlier one.
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
