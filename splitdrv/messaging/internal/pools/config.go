package pools

import (
	"time"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/memory"
)

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
	MaxElementSize = SlotSize
	// ExtraElements is the largest number of elements of a pool that is lent on request, so
	// that immediate data can name each of them.
	ExtraElements = protocol.MaxImmElements

	// SlotSize is the size in bytes of a send slot: the largest frame, and the headroom that
	// a port and SendData need before it.
	SlotSize = 1<<16 + 128
	// FirstSlots is the number of send slots of a new data channel, enough for a channel that
	// sends a single frame now and then.
	FirstSlots = 8
)

// Config is the size of a pool that is lent to the peer.
type Config struct {
	ElementSize int // bytes, virtio_net_hdr included; up to MaxElementSize
	Elements    int // per data channel; up to MaxElements
}

// Bytes returns the size of the memory of the pool.
func (p Config) Bytes() int { return memory.PageUp(p.ElementSize * p.Elements) }

// Indicated reports whether transfers to the pool, of this reference, may be indicated by a message
// instead of immediate data.
func (p Config) Indicated(m protocol.Mode, ref uint32) bool {
	return m.Indicated() || m.Immediate() && (ref >= protocol.MaxImmPools ||
		p.ElementSize > protocol.MaxImmElementSize || p.Elements > protocol.MaxImmElements)
}

// Options are the settings of a pool manager.
type Options struct {
	Channels  int            // data channels
	PeerPools int            // largest number of pools that the peer lends on a data channel
	Idle      time.Duration  // Config.PoolIdle
	Budget    *memory.Budget // nil: there is none
	Now       func() time.Time

	// Windows is true if a window is bound around each local pool, and OneTouch if one is bound
	// around each element. WindowBounds says that the device enforces their bounds.
	Windows, OneTouch, WindowBounds bool
	StrictOrdering                  bool
	Invalidation                    bool // Config.Invalidation
	KeySend                         bool // Config.KeySend
	PeerOneTouch                    bool // the peer may lend one-touch pools
}
