package protocol

import (
	"encoding/binary"
	"fmt"
)

// FlushGiveBack is the bit of a pool reference in a BufferPoolFlushRequest for a pool of the
// receiver, which the sender returns. Without this bit the pool is one of the sender, which takes
// it back.
const FlushGiveBack = 1 << 31

// MaxPoolRef is the largest pool reference.
const MaxPoolRef = FlushGiveBack - 1

// MaxFlushPools is the largest number of pools in a BufferPoolFlushRequest.
const MaxFlushPools = (MaxControlSize - HeaderSize) / 4

// BufferPoolFlushRequest is the decoded message that requests the end of the use of pools. The
// initiator replies to a target's request when it will not write to the pools any more. The target
// replies to an initiator's request when it has recorded the request. The target deregisters the
// memory after the exchange. BufferPoolFlushRequest borrows the message's bytes.
type BufferPoolFlushRequest struct {
	TransactionContext uint64
	pools              []byte
}

// DecodeBufferPoolFlushRequest decodes b, one whole message.
func DecodeBufferPoolFlushRequest(b []byte) (BufferPoolFlushRequest, error) {
	transaction, rest, err := records(b, FuncBufferPoolFlushRequest, 4)
	if err != nil {
		return BufferPoolFlushRequest{}, err
	}
	return BufferPoolFlushRequest{TransactionContext: transaction, pools: rest}, nil
}

// Len returns the number of pools, at least one.
func (m BufferPoolFlushRequest) Len() int { return len(m.pools) / 4 }

// Pool returns the reference of the i-th pool, i from 0 to Len()-1. The bit FlushGiveBack may be
// set.
func (m BufferPoolFlushRequest) Pool(i int) uint32 { return binary.BigEndian.Uint32(m.pools[4*i:]) }

// AppendBufferPoolFlushRequest appends a request for 1 to MaxFlushPools pools.
func AppendBufferPoolFlushRequest(dst []byte, transaction uint64, pools ...uint32) []byte {
	dst = appendHeader(dst, FuncBufferPoolFlushRequest, transaction)
	for _, p := range pools {
		dst = binary.BigEndian.AppendUint32(dst, p)
	}
	return dst
}

// BufferPoolFlushReply is the reply to a BufferPoolFlushRequest. It has no body: the transaction
// context identifies the request, which names the pools.
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

// AppendBufferPoolFlushReply appends the reply to the request with that transaction context.
func AppendBufferPoolFlushReply(dst []byte, transaction uint64) []byte {
	return appendHeader(dst, FuncBufferPoolFlushReply, transaction)
}
