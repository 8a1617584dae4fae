package protocol

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Limits of a pool.
const (
	// MaxPoolElements is the largest number of elements of a pool, because
	// BufferRecvPoolUpdate names an element in 16 bits.
	MaxPoolElements = 1 << 16
	// MinElementSize is the size of the smallest element in bytes. The virtio_net_hdr and the
	// shortest Ethernet frame fit it, in one cache line.
	MinElementSize = 64

	// MaxChannelPools is the largest number of pools that one side lends on a
	// data channel at a time.
	MaxChannelPools = 64

	// MaxImmElementSize is the size in bytes of the largest element in mode imm. Immediate data
	// can indicate all of it but the last byte.
	MaxImmElementSize = MaxImmLength + 1

	// MaxPoolsPerMessage is the largest number of pools in a BufferRecvPool.
	MaxPoolsPerMessage = (MaxControlSize - HeaderSize) / poolSize
)

const poolSize = 32

// Pool describes a pool: an array of elements of equal size in the target's memory, which is lent
// to the initiator.
type Pool struct {
	Ref         uint32 // chosen by the target; unique among all pools it lends in a session
	Elements    uint32
	ElementSize uint32 // bytes
	RKey        uint32 // memory handle: the key for RDMA writes into the pool; 0 in a mode that sends
	Addr        uint64 // virtual address of element 0 in the target; 0 in a mode that sends
	Context     uint64 // PoolContext
}

// PoolContext returns the context of a pool. The low 16 bits are the only data channel (1 … N) that
// may use the pool. The lender chooses the other 48 bits.
func PoolContext(channel uint16, own uint64) uint64 {
	return own<<16 | uint64(channel)
}

// PoolInvalidate is a bit of the lender's part of a pool's context. Between sides with
// FeatureWindow it means that the memory handle is the key of a memory window that the initiator
// has to invalidate.
const PoolInvalidate uint64 = 1

// PoolKeyFollows is a bit of the lender's part of a pool's context. Between sides with
// FeatureKeySend it means that the key of the pool's memory window is sent on the data channel, by a
// SEND without data whose immediate data is the key. Such keys are sent in the order of the pools.
// The memory handle has no meaning then.
const PoolKeyFollows uint64 = 2

// KeyFollows reports whether the pool's context has PoolKeyFollows.
func (p Pool) KeyFollows() bool { return p.Context>>16&PoolKeyFollows != 0 }

// Invalidate reports whether the pool's context has PoolInvalidate.
func (p Pool) Invalidate() bool { return p.Context>>16&PoolInvalidate != 0 }

// Channel returns the data channel of the pool, from 1.
func (p Pool) Channel() uint16 { return uint16(p.Context) }

// Bytes returns the size of the pool's memory in bytes. It cannot overflow if the pool is Valid.
func (p Pool) Bytes() uint64 { return uint64(p.Elements) * uint64(p.ElementSize) }

// Valid checks a pool for any transfer mode: the number and size of the elements, the data channel,
// and that the memory does not wrap around the address space.
func (p Pool) Valid() error {
	if p.Ref > MaxPoolRef {
		return fmt.Errorf("pool %#x: references end at %#x: %w", p.Ref, uint32(MaxPoolRef), ErrPool)
	}
	if p.Elements == 0 || p.Elements > MaxPoolElements {
		return fmt.Errorf("pool %d: %d elements, must be 1 to %d: %w", p.Ref, p.Elements, MaxPoolElements, ErrCount)
	}
	if p.ElementSize < MinElementSize {
		return fmt.Errorf("pool %d: elements of %d bytes, must be at least %d: %w", p.Ref, p.ElementSize, MinElementSize,
			ErrSize)
	}
	if p.Addr > math.MaxUint64-p.Bytes() {
		return fmt.Errorf("pool %d: %d elements of %d bytes from address %#x: %w", p.Ref, p.Elements, p.ElementSize, p.Addr,
			ErrOverflow)
	}
	if p.Channel() == 0 {
		return fmt.Errorf("pool %d: context %#x: %w", p.Ref, p.Context, ErrChannel)
	}
	return nil
}

// ValidSend checks a pool like Valid, and also that it is one of a mode that sends. Elements of such
// a pool are receives of ElementSize bytes that the target has posted, and no memory to write to.
func (p Pool) ValidSend() error {
	if err := p.Valid(); err != nil {
		return err
	}
	if p.RKey != 0 || p.Addr != 0 {
		return fmt.Errorf("pool %d: memory handle %#x and address %#x for posted receives: %w", p.Ref, p.RKey, p.Addr,
			ErrMemory)
	}
	return nil
}

// BufferRecvPool is the decoded message with which a target lends pools. It
// borrows the message's bytes.
type BufferRecvPool struct {
	TransactionContext uint64
	pools              []byte
}

// DecodeBufferRecvPool decodes b, one whole message. Each pool in it is Valid.
func DecodeBufferRecvPool(b []byte) (BufferRecvPool, error) {
	transaction, rest, err := records(b, FuncBufferRecvPool, poolSize)
	if err != nil {
		return BufferRecvPool{}, err
	}
	m := BufferRecvPool{TransactionContext: transaction, pools: rest}
	for i := range m.Len() {
		if err := m.At(i).Valid(); err != nil {
			return BufferRecvPool{}, fmt.Errorf("BufferRecvPool: %w", err)
		}
	}
	return m, nil
}

// Len returns the number of pools in the message, at least one.
func (m BufferRecvPool) Len() int { return len(m.pools) / poolSize }

// At returns the i-th pool, i from 0 to Len()-1.
func (m BufferRecvPool) At(i int) Pool {
	b := m.pools[i*poolSize:][:poolSize]
	return Pool{
		Ref:         binary.BigEndian.Uint32(b[0:]),
		Elements:    binary.BigEndian.Uint32(b[4:]),
		ElementSize: binary.BigEndian.Uint32(b[8:]),
		RKey:        binary.BigEndian.Uint32(b[12:]),
		Addr:        binary.BigEndian.Uint64(b[16:]),
		Context:     binary.BigEndian.Uint64(b[24:]),
	}
}

// AppendBufferRecvPool appends a message that lends 1 to MaxPoolsPerMessage pools.
func AppendBufferRecvPool(dst []byte, transaction uint64, pools ...Pool) []byte {
	dst = appendHeader(dst, FuncBufferRecvPool, transaction)
	for i := range pools {
		p := &pools[i]
		dst = binary.BigEndian.AppendUint32(dst, p.Ref)
		dst = binary.BigEndian.AppendUint32(dst, p.Elements)
		dst = binary.BigEndian.AppendUint32(dst, p.ElementSize)
		dst = binary.BigEndian.AppendUint32(dst, p.RKey)
		dst = binary.BigEndian.AppendUint64(dst, p.Addr)
		dst = binary.BigEndian.AppendUint64(dst, p.Context)
	}
	return dst
}

// BufferRecvPoolGet is the message with which an initiator requests another pool. The target lends
// one or does nothing; there is no reply.
type BufferRecvPoolGet struct {
	TransactionContext uint64
	ElementSize        uint32 // bytes; the elements lent may be larger
	Elements           uint32 // number wanted; the pool lent may have more or fewer
	Channel            uint32 // data channel, from 1
}

// DecodeBufferRecvPoolGet decodes b, one whole message. It checks that the requested pool is within
// the limits of a pool.
func DecodeBufferRecvPoolGet(b []byte) (BufferRecvPoolGet, error) {
	transaction, rest, err := body(b, FuncBufferRecvPoolGet)
	if err != nil {
		return BufferRecvPoolGet{}, err
	}
	if err := exactly(rest, 12); err != nil {
		return BufferRecvPoolGet{}, fmt.Errorf("BufferRecvPoolGet: %w", err)
	}
	m := BufferRecvPoolGet{
		TransactionContext: transaction,
		ElementSize:        binary.BigEndian.Uint32(rest[0:]),
		Elements:           binary.BigEndian.Uint32(rest[4:]),
		Channel:            binary.BigEndian.Uint32(rest[8:]),
	}
	if err := m.Valid(); err != nil {
		return BufferRecvPoolGet{}, fmt.Errorf("BufferRecvPoolGet: %w", err)
	}
	return m, nil
}

// Valid checks that the requested pool is within the limits of a pool.
func (m BufferRecvPoolGet) Valid() error {
	switch {
	case m.ElementSize < MinElementSize:
		return fmt.Errorf("elements of %d bytes, must be at least %d: %w", m.ElementSize, MinElementSize, ErrSize)
	case m.Elements == 0 || m.Elements > MaxPoolElements:
		return fmt.Errorf("%d elements, must be 1 to %d: %w", m.Elements, MaxPoolElements, ErrCount)
	case m.Channel == 0 || m.Channel > math.MaxUint16:
		return fmt.Errorf("data channel %d: %w", m.Channel, ErrChannel)
	}
	return nil
}

// AppendBufferRecvPoolGet appends m.
func AppendBufferRecvPoolGet(dst []byte, m BufferRecvPoolGet) []byte {
	dst = appendHeader(dst, FuncBufferRecvPoolGet, m.TransactionContext)
	dst = binary.BigEndian.AppendUint32(dst, m.ElementSize)
	dst = binary.BigEndian.AppendUint32(dst, m.Elements)
	return binary.BigEndian.AppendUint32(dst, m.Channel)
}
