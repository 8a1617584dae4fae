package protocol

import (
	"encoding/binary"
	"fmt"
)

// PoolReturn names elements of one pool that the initiator may use again.
type PoolReturn struct {
	Pool     uint32
	Elements []uint16 // at least one; the encoder borrows it during the call
}

const poolReturnSize = 8 // pool reference and count, before the elements

// PoolReturnSize returns the size in bytes of a PoolReturn of n elements in a message: two bytes
// for each, rounded up to a multiple of four, and eight.
// Seven pools of 256 elements fit one message.
func PoolReturnSize(n int) int { return poolReturnSize + (2*n+3)&^3 }

// BufferRecvPoolUpdate is the decoded message with which a target returns elements to the initiator.
// It borrows the message's bytes.
type BufferRecvPoolUpdate struct {
	TransactionContext uint64
	returns            []byte
}

// DecodeBufferRecvPoolUpdate decodes b, one whole message.
func DecodeBufferRecvPoolUpdate(b []byte) (BufferRecvPoolUpdate, error) {
	transaction, rest, err := body(b, FuncBufferRecvPoolUpdate)
	if err != nil {
		return BufferRecvPoolUpdate{}, err
	}
	if len(rest) == 0 {
		return BufferRecvPoolUpdate{}, fmt.Errorf("BufferRecvPoolUpdate without a pool: %w", ErrCount)
	}
	m := BufferRecvPoolUpdate{TransactionContext: transaction, returns: rest}
	for len(rest) > 0 {
		if len(rest) < poolReturnSize {
			return BufferRecvPoolUpdate{}, fmt.Errorf("BufferRecvPoolUpdate: the last pool has %d of %d bytes: %w", len(rest),
				poolReturnSize, ErrShort)
		}
		pool := binary.BigEndian.Uint32(rest)
		count := binary.BigEndian.Uint32(rest[4:])
		// The comparison precedes the conversion, because an int may have 32 bits.
		if count == 0 || count > MaxPoolElements {
			return BufferRecvPoolUpdate{}, fmt.Errorf("BufferRecvPoolUpdate: pool %d: %d elements, must be 1 to %d: %w", pool,
				count, MaxPoolElements, ErrCount)
		}
		size := PoolReturnSize(int(count))
		if len(rest) < size {
			return BufferRecvPoolUpdate{}, fmt.Errorf("BufferRecvPoolUpdate: pool %d: %d elements need %d bytes, %d left: %w",
				pool, count, size, len(rest), ErrShort)
		}
		if count%2 == 1 && binary.BigEndian.Uint16(rest[size-2:]) != 0 {
			return BufferRecvPoolUpdate{}, fmt.Errorf("BufferRecvPoolUpdate: pool %d: %w", pool, ErrPadding)
		}
		rest = rest[size:]
	}
	return m, nil
}

// Returns iterates over the pools of the message.
func (m BufferRecvPoolUpdate) Returns() PoolReturns { return PoolReturns{rest: m.returns} }

// PoolReturns iterates over the pools of a BufferRecvPoolUpdate:
//
//	for r := m.Returns(); r.Next(); {
//		for i := range r.Len() {
//			giveBack(r.Pool(), r.Element(i))
//		}
//	}
//
// A pool may occur more than once.
type PoolReturns struct {
	pool     uint32
	elements []byte
	rest     []byte
}

// Next advances to the next pool and reports whether there is one. The other methods are about that
// pool.
func (r *PoolReturns) Next() bool {
	if len(r.rest) == 0 {
		return false
	}
	r.pool = binary.BigEndian.Uint32(r.rest)
	n := int(binary.BigEndian.Uint32(r.rest[4:]))
	r.elements = r.rest[poolReturnSize:][:2*n]
	r.rest = r.rest[PoolReturnSize(n):]
	return true
}

// Pool returns the reference of the pool.
func (r *PoolReturns) Pool() uint32 { return r.pool }

// Len returns the number of elements, at least one.
func (r *PoolReturns) Len() int { return len(r.elements) / 2 }

// Element returns the index of the i-th element, i from 0 to Len()-1.
func (r *PoolReturns) Element(i int) uint16 { return binary.BigEndian.Uint16(r.elements[2*i:]) }

// AppendBufferRecvPoolUpdate appends a message that returns elements. There must be at least one
// return. The sum of HeaderSize and the PoolReturnSize of all returns must be at most
// MaxControlSize.
func AppendBufferRecvPoolUpdate(dst []byte, transaction uint64, returns ...PoolReturn) []byte {
	dst = appendHeader(dst, FuncBufferRecvPoolUpdate, transaction)
	for i := range returns {
		r := &returns[i]
		dst = binary.BigEndian.AppendUint32(dst, r.Pool)
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(r.Elements)))
		for _, e := range r.Elements {
			dst = binary.BigEndian.AppendUint16(dst, e)
		}
		if len(r.Elements)%2 == 1 {
			dst = append(dst, 0, 0)
		}
	}
	return dst
}
