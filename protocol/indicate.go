package protocol

import (
	"encoding/binary"
	"math"
)

const indicationSize = 12

// MaxIndications is the largest number of transfers in a BufferRDMAIndicate.
const MaxIndications = (MaxControlSize - HeaderSize) / indicationSize

// Indication means that bytes were written to the beginning of an element. It is like ImmData with
// 32 bits for each part.
type Indication struct {
	Pool    uint32 // reference
	Element uint32 // index
	Length  uint32 // bytes
}

// BufferRDMAIndicate is the decoded message with which an initiator indicates completed RDMA writes
// without immediate data, in their order. It borrows the message's bytes.
type BufferRDMAIndicate struct {
	TransactionContext uint64
	indications        []byte
}

// DecodeBufferRDMAIndicate decodes b, one whole message. The target has to check that the pool and
// the element exist, and that the element has the length.
func DecodeBufferRDMAIndicate(b []byte) (BufferRDMAIndicate, error) {
	transaction, rest, err := records(b, FuncBufferRDMAIndicate, indicationSize)
	if err != nil {
		return BufferRDMAIndicate{}, err
	}
	return BufferRDMAIndicate{TransactionContext: transaction, indications: rest}, nil
}

// Len returns the number of transfers, at least one.
func (m BufferRDMAIndicate) Len() int { return len(m.indications) / indicationSize }

// At returns the i-th transfer, i from 0 to Len()-1.
func (m BufferRDMAIndicate) At(i int) Indication {
	b := m.indications[i*indicationSize:][:indicationSize]
	return Indication{
		Pool:    binary.BigEndian.Uint32(b[0:]),
		Element: binary.BigEndian.Uint32(b[4:]),
		Length:  binary.BigEndian.Uint32(b[8:]),
	}
}

// AppendBufferRDMAIndicate appends a message that indicates 1 to MaxIndications transfers.
func AppendBufferRDMAIndicate(dst []byte, transaction uint64, indications ...Indication) []byte {
	dst = appendHeader(dst, FuncBufferRDMAIndicate, transaction)
	for i := range indications {
		n := &indications[i]
		dst = binary.BigEndian.AppendUint32(dst, n.Pool)
		dst = binary.BigEndian.AppendUint32(dst, n.Element)
		dst = binary.BigEndian.AppendUint32(dst, n.Length)
	}
	return dst
}

// Limits of immediate data.
const (
	// MaxImmPools is the number of pools.
	MaxImmPools = 1 << 8
	// MaxImmElements is the number of elements of a pool.
	MaxImmElements = 1 << 8
	// MaxImmLength is the largest length in bytes.
	MaxImmLength = math.MaxUint16
)

// CanImm reports whether immediate data can indicate a transfer of length bytes
// to an element of a pool.
func CanImm(pool, element uint32, length int) bool {
	return pool < MaxImmPools && element < MaxImmElements && uint(length) <= MaxImmLength
}

// ImmData is the transfer indication in the immediate data of an RDMA write:
// the pool in bits 31–24, the element in bits 23–16 and the length in bits
// 15–0. The value is in host byte order; the verbs put it on the wire
// big-endian.
type ImmData uint32

// PackImm returns the indication that length bytes were written to the beginning of an element of
// a pool.
func PackImm(pool, element uint8, length uint16) ImmData {
	return ImmData(pool)<<24 | ImmData(element)<<16 | ImmData(length)
}

// Unpack is the inverse of PackImm. Every value can be unpacked. The target has to check that the
// pool and the element exist, and that the element has the length.
func (i ImmData) Unpack() (pool, element uint8, length uint16) {
	return uint8(i >> 24), uint8(i >> 16), uint16(i)
}
