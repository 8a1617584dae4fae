package messaging

import "github.com/splitnic/splitnic/protocol"

const (
	// MaxPools is the largest number of pools that a side may lend on one data
	// channel at a time.
	MaxPools = 64
	// MaxElements is the largest number of elements of a pool that this side lends. A
	// quarter of them, after which an update is sent, fits into one message.
	MaxElements = 4096
	// MaxChannelElements is the largest total number of elements of the pools that one side
	// lends on one data channel. It bounds the memory that this side needs to keep account
	// of the peer's pools.
	MaxChannelElements = protocol.MaxPoolElements
	// MaxElementSize is the largest size in bytes of an element that this side lends.
	MaxElementSize = slotSize
	// extraElements is the largest number of elements of a pool that is lent on request, so
	// that immediate data can name each of them.
	extraElements = protocol.MaxImmElements

	// slotSize is the size in bytes of a send slot: the largest frame, and the headroom that
	// a port and SendData need before it.
	slotSize = 1<<16 + 128
	// firstSlots is the number of send slots of a new data channel, enough for a channel that
	// sends a single frame now and then.
	firstSlots = 8
)

// PoolConfig is the size of a pool that is lent to the peer.
type PoolConfig struct {
	ElementSize int // bytes, virtio_net_hdr included; up to MaxElementSize
	Elements    int // per data channel; up to MaxElements
}

func (p PoolConfig) bytes() int { return pageUp(p.ElementSize * p.Elements) }

// indicated reports whether transfers to the pool may be indicated by a message instead of immediate
// data.
func (p PoolConfig) indicated(m protocol.Mode) bool {
	return m == protocol.ModeIndicate ||
		m == protocol.ModeImm && (p.ElementSize > protocol.MaxImmElementSize || p.Elements > protocol.MaxImmElements)
}
