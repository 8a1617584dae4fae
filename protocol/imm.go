package protocol

import "math"

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
