package protocol

import (
	"encoding/binary"
	"fmt"
)

// FlushGiveBack marks a pool reference in a BufferPoolFlushRequest as one of the
// receiver's pools, which the sender gives back. Without it the pool is one of
// the sender's own, which it takes back.
const FlushGiveBack = 1 << 31

// MaxPoolRef is the largest pool reference.
const MaxPoolRef = FlushGiveBack - 1

// MaxFlushPools is how many pools one BufferPoolFlushRequest can name.
const MaxFlushPools = (MaxControlSize - HeaderSize) / 4

// BufferPoolFlushRequest is the decoded message that asks to stop using pools.
// From the target it is answered when the initiator will not write to them any
// more, from the initiator when the target has taken note; the target
// deregisters after the exchange. It borrows the message's bytes.
type BufferPoolFlushRequest struct {
	TransactionContext uint64
	pools              []byte
}

// DecodeBufferPoolFlushRequest decodes b, one whole message.
func DecodeBufferPoolFlushRequest(b []byte) (BufferPoolFlushRequest, error) {
	transaction, rest, err := body(b, FuncBufferPoolFlushRequest)
	if err != nil {
		return BufferPoolFlushRequest{}, err
	}
	if len(rest) == 0 {
		return BufferPoolFlushRequest{}, fmt.Errorf("BufferPoolFlushRequest without a pool: %w", ErrCount)
	}
	if n := len(rest) % 4; n != 0 {
		return BufferPoolFlushRequest{}, fmt.Errorf("BufferPoolFlushRequest: the last pool reference has %d of 4 bytes: %w",
			n, ErrShort)
	}
	return BufferPoolFlushRequest{TransactionContext: transaction, pools: rest}, nil
}

// Len is the number of pools, at least one.
func (m BufferPoolFlushRequest) Len() int { return len(m.pools) / 4 }

// Pool is the reference of the i-th pool, i from 0 to Len()-1, perhaps with
// FlushGiveBack.
func (m BufferPoolFlushRequest) Pool(i int) uint32 { return binary.BigEndian.Uint32(m.pools[4*i:]) }

// AppendBufferPoolFlushRequest appends a request to stop using pools, of which
// there must be 1 to MaxFlushPools.
func AppendBufferPoolFlushRequest(dst []byte, transaction uint64, pools ...uint32) []byte {
	dst = appendHeader(dst, FuncBufferPoolFlushRequest, transaction)
	for _, p := range pools {
		dst = binary.BigEndian.AppendUint32(dst, p)
	}
	return dst
}

// BufferPoolFlushReply answers a BufferPoolFlushRequest. It has no body: the
// transaction context says which request, and that names the pools.
type BufferPoolFlushReply struct {
	TransactionContext uint64
}

// DecodeBufferPoolFlushReply decodes b, one whole message.
func DecodeBufferPoolFlushReply(b []byte) (BufferPoolFlushReply, error) {
	transaction, rest, err := body(b, FuncBufferPoolFlushReply)
	if err != nil {
		return BufferPoolFlushReply{}, err
	}
	if len(rest) != 0 {
		return BufferPoolFlushReply{}, fmt.Errorf("BufferPoolFlushReply with %d more bytes: %w", len(rest), ErrTrailing)
	}
	return BufferPoolFlushReply{TransactionContext: transaction}, nil
}

// AppendBufferPoolFlushReply appends the answer to the request with that
// transaction context.
func AppendBufferPoolFlushReply(dst []byte, transaction uint64) []byte {
	return appendHeader(dst, FuncBufferPoolFlushReply, transaction)
}
