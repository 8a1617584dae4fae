package protocol

// MaxImmLength is the largest length in bytes that immediate data can carry.
const MaxImmLength = 1<<16 - 1

// ImmData is the transfer indication in the immediate data of an RDMA write:
// the pool in bits 31–24, the element in bits 23–16 and the length in bits
// 15–0. The value is in host byte order; the verbs put it on the wire
// big-endian.
type ImmData uint32

// PackImm is the indication that length bytes were written from the start of
// an element of a pool.
func PackImm(pool, element uint8, length uint16) ImmData {
	return ImmData(pool)<<24 | ImmData(element)<<16 | ImmData(length)
}

// Unpack is the inverse of PackImm. Every value unpacks; whether there is such
// a pool and element, and whether the length fits it, is for the target to
// check.
func (i ImmData) Unpack() (pool, element uint8, length uint16) {
	return uint8(i >> 24), uint8(i >> 16), uint16(i)
}
