package protocol

import (
	"encoding/binary"
	"fmt"
)

// MaxPoolKeys is the largest number of keys in a CfgPoolKeys.
const MaxPoolKeys = (MaxCfgData - poolKeysHead) / 4

const poolKeysHead = 8

// PoolKeys has the first keys of elements of a pool that will be lent. It is the data of
// CfgPoolKeys. NextKey returns the key with which an element is lent next.
type PoolKeys struct {
	Pool  uint32 // reference of the pool
	First uint32 // element of the first key
	keys  []byte
}

// DecodePoolKeys decodes the data of CfgPoolKeys, which it borrows: the pool and the first element
// in 32 bits each, then 1 to MaxPoolKeys keys.
func DecodePoolKeys(data []byte) (PoolKeys, error) {
	if len(data) < poolKeysHead {
		return PoolKeys{}, fmt.Errorf("%v: %d bytes of data, must be at least %d: %w", CfgPoolKeys, len(data), poolKeysHead+4,
			ErrShort)
	}
	k := PoolKeys{Pool: binary.BigEndian.Uint32(data), First: binary.BigEndian.Uint32(data[4:]), keys: data[poolKeysHead:]}
	switch n := len(k.keys); {
	case n%4 != 0:
		return PoolKeys{}, fmt.Errorf("%v: the last key has %d of 4 bytes: %w", CfgPoolKeys, n%4, ErrShort)
	case n == 0 || k.Len() > MaxPoolKeys:
		return PoolKeys{}, fmt.Errorf("%v: %d keys, must be 1 to %d: %w", CfgPoolKeys, k.Len(), MaxPoolKeys, ErrCount)
	case k.Pool > MaxPoolRef:
		return PoolKeys{}, fmt.Errorf("%v: pool %#x: references end at %#x: %w", CfgPoolKeys, k.Pool, uint32(MaxPoolRef),
			ErrPool)
	case k.First > MaxPoolElements || int(k.First)+k.Len() > MaxPoolElements:
		return PoolKeys{}, fmt.Errorf("%v: %d keys from element %d on, pools have at most %d: %w", CfgPoolKeys, k.Len(),
			k.First, MaxPoolElements, ErrCount)
	}
	return k, nil
}

// Len returns the number of keys, at least one.
func (k PoolKeys) Len() int { return len(k.keys) / 4 }

// At returns the i-th key, i from 0 to Len()-1.
func (k PoolKeys) At(i int) uint32 { return binary.BigEndian.Uint32(k.keys[4*i:]) }

// AppendPoolKeys appends the data of CfgPoolKeys with 1 to MaxPoolKeys keys.
func AppendPoolKeys(dst []byte, pool, first uint32, keys []uint32) []byte {
	dst = binary.BigEndian.AppendUint32(dst, pool)
	dst = binary.BigEndian.AppendUint32(dst, first)
	for _, k := range keys {
		dst = binary.BigEndian.AppendUint32(dst, k)
	}
	return dst
}

// NextKey returns the key that follows key for an element of a one-touch pool. The owner of a type-2
// window chooses the low eight bits of its key. They are incremented at each bind, without a carry
// (ibv_inc_rkey(3)).
func NextKey(key uint32) uint32 { return key&^0xff | (key+1)&0xff }
