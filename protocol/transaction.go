package protocol

import (
	"encoding/binary"
	"fmt"
	"iter"
	"math"

	"github.com/splitnic/splitnic/internal/printable"
)

// DirectedOperation is the operation that an I/O device is to carry out.
type DirectedOperation uint32

// The operations.
const (
	DirectedRead  DirectedOperation = 1 // from the I/O device to the result buffers
	DirectedWrite DirectedOperation = 2 // from the source buffers to the I/O device
	// DirectedExchange passes the data of the source buffers to the I/O device, and then what it
	// returns for them to the result buffers. The I/O device gives it its meaning.
	DirectedExchange DirectedOperation = 3
)

var directedOperations = [...]string{DirectedRead: "read", DirectedWrite: "write", DirectedExchange: "exchange"}

// String returns the name of the operation.
func (o DirectedOperation) String() string {
	return printable.Name(directedOperations[:], o, "operation")
}

const (
	// MaxDirectedTransactions is the largest number of transactions of a request.
	MaxDirectedTransactions = 64
	// MaxDirectedExchange is the largest number of bytes of an exchange: its source data and its
	// results, which an I/O unit has in its memory at the same time.
	MaxDirectedExchange = 1 << 20

	directedTransactionSize = 32
	// maxDeviceSize is the size of the largest I/O device. Offsets fit signed integers of 64 bits.
	maxDeviceSize = 1<<63 - 1
	// maxListBytes is the number of bytes of the largest list.
	maxListBytes = MaxListElements * math.MaxUint32
)

// DirectedBuffers describes the source buffers or the result buffers of a transaction.
type DirectedBuffers struct {
	Count uint16
	Bytes uint64 // of all of them
}

// DirectedTransaction describes one transaction of a request. Its buffers are in the list of the
// request: first the source buffers, then the result buffers.
type DirectedTransaction struct {
	Operation DirectedOperation
	Offset    uint64 // on the I/O device, in bytes
	Source    DirectedBuffers
	Results   DirectedBuffers
}

// Bytes returns the number of bytes of all buffers.
func (t *DirectedTransaction) Bytes() uint64 { return t.Source.Bytes + t.Results.Bytes }

// sides returns the buffers in the order of the list.
func (t *DirectedTransaction) sides() [2]DirectedBuffers {
	return [2]DirectedBuffers{t.Source, t.Results}
}

// valid checks the transaction by itself. Sums of valid numbers of bytes do not overflow.
func (t *DirectedTransaction) valid() error {
	for _, b := range t.sides() {
		switch {
		case b.Count == 0 && b.Bytes != 0:
			return fmt.Errorf("%d bytes in no buffers: %w", b.Bytes, ErrCount)
		case b.Bytes < uint64(b.Count):
			return fmt.Errorf("%d bytes in %d buffers: %w", b.Bytes, b.Count, ErrSize)
		case b.Bytes > maxListBytes || t.Offset > maxDeviceSize-b.Bytes:
			return fmt.Errorf("%d bytes at %#x: %w", b.Bytes, t.Offset, ErrOverflow)
		}
	}
	var suits bool
	switch t.Operation {
	case DirectedRead:
		suits = t.Source.Count == 0 && t.Results.Count != 0
	case DirectedWrite:
		suits = t.Source.Count != 0 && t.Results.Count == 0
	case DirectedExchange:
		suits = true
		if n := t.Bytes(); n > MaxDirectedExchange {
			return fmt.Errorf("%d bytes, at most %d: %w", n, MaxDirectedExchange, ErrSize)
		}
	default:
		return ErrFunction
	}
	if !suits {
		return fmt.Errorf("%d source buffers and %d result buffers: %w", t.Source.Count, t.Results.Count, ErrCount)
	}
	return nil
}

func decodeDirectedTransaction(b []byte) DirectedTransaction {
	return DirectedTransaction{
		Operation: DirectedOperation(binary.BigEndian.Uint32(b)),
		Offset:    binary.BigEndian.Uint64(b[8:]),
		Source: DirectedBuffers{
			Count: binary.BigEndian.Uint16(b[4:]), Bytes: binary.BigEndian.Uint64(b[16:]),
		},
		Results: DirectedBuffers{
			Count: binary.BigEndian.Uint16(b[6:]), Bytes: binary.BigEndian.Uint64(b[24:]),
		},
	}
}

func (t *DirectedTransaction) append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(t.Operation))
	dst = binary.BigEndian.AppendUint16(dst, t.Source.Count)
	dst = binary.BigEndian.AppendUint16(dst, t.Results.Count)
	dst = binary.BigEndian.AppendUint64(dst, t.Offset)
	dst = binary.BigEndian.AppendUint64(dst, t.Source.Bytes)
	return binary.BigEndian.AppendUint64(dst, t.Results.Bytes)
}

// decodeDirectedTransactions decodes and checks transactions, which fill b.
func decodeDirectedTransactions(b []byte) ([]DirectedTransaction, error) {
	transactions := make([]DirectedTransaction, len(b)/directedTransactionSize)
	for i := range transactions {
		t := &transactions[i]
		*t = decodeDirectedTransaction(b[i*directedTransactionSize:])
		if err := t.valid(); err != nil {
			return nil, fmt.Errorf("transaction %d, %v: %w", i, t.Operation, err)
		}
	}
	return transactions, nil
}

// checkDirectedList checks the first sequence of the list of valid transactions, and the buffers if
// that is the whole list. There is no list if there are no buffers.
func checkDirectedList(transactions []DirectedTransaction, sequence []byte) error {
	buffers, bytes := uint32(0), uint64(0)
	for i := range transactions {
		t := &transactions[i]
		buffers += uint32(t.Source.Count) + uint32(t.Results.Count)
		bytes += t.Bytes()
	}
	if buffers == 0 && len(sequence) == 0 {
		return nil
	}
	var list ListDecoder
	_, more, err := list.Add(sequence)
	if err != nil {
		return err
	}
	switch a := list.Attributes(); {
	case a.Buffers != buffers:
		return fmt.Errorf("%d buffers, the list has %d: %w", buffers, a.Buffers, ErrCount)
	case a.Bytes != bytes:
		return fmt.Errorf("%d bytes, the list has %d: %w", bytes, a.Bytes, ErrSize)
	case more:
		return nil
	}
	return MatchDirected(transactions, &list)
}

// MatchDirected checks that a complete list has the buffers of these transactions, and no data in
// the list itself where the results belong.
func MatchDirected(transactions []DirectedTransaction, list *ListDecoder) error {
	next, stop := iter.Pull(list.Elements())
	defer stop()
	for i := range transactions {
		for side, b := range transactions[i].sides() {
			bytes := uint64(0)
			for left := b.Count; left != 0; {
				e, ok := next()
				switch {
				case !ok:
					return fmt.Errorf("transaction %d has no more buffers: %w", i, ErrCount)
				case e.Data != nil && side == 1:
					return fmt.Errorf("transaction %d has data for results: %w", i, ErrElement)
				}
				bytes += uint64(e.Bytes())
				if e.EndOfBuffer {
					left--
				}
			}
			if bytes != b.Bytes {
				return fmt.Errorf("transaction %d has %d bytes where its buffers have %d: %w", i, b.Bytes, bytes, ErrSize)
			}
		}
	}
	if _, more := next(); more {
		return fmt.Errorf("buffers of no transaction: %w", ErrTrailing)
	}
	return nil
}
