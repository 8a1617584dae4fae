package messaging

import (
	"fmt"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/vnet"
)

const (
	// MaxQueues is the largest number of data channels of a session.
	MaxQueues = 16
	// MaxPoolsPerChannel is the largest number of pools that a peer may lend
	// on one data channel. With MaxQueues it keeps references below 256.
	MaxPoolsPerChannel = 4
	// MaxRequests is how many requests a side may have unanswered.
	MaxRequests = 4

	// slotSize holds the largest frame, and the headroom that a port may use
	// before it.
	slotSize = 1<<16 + 128
)

// PoolConfig is one size class of the pools lent to the peer.
type PoolConfig struct {
	ElementSize int // bytes, virtio_net_hdr included; up to 65536
	Elements    int // per data channel; up to 256
}

// DefaultPools are the size classes for an MTU: single frames, and segments
// that a network card or the kernel has still to cut up.
func DefaultPools(mtu int) []PoolConfig {
	const ethernet = 14 + 4 // header and one VLAN tag
	pools := []PoolConfig{{ElementSize: 2048, Elements: 256}}
	if frame := vnet.HdrLen + ethernet + mtu; frame > pools[0].ElementSize && frame < protocol.MaxImmElementSize/2 {
		pools = append(pools, PoolConfig{ElementSize: (frame + 1023) &^ 1023, Elements: 64})
	}
	return append(pools, PoolConfig{ElementSize: protocol.MaxImmElementSize, Elements: 32})
}

// Config says what a Conn is made of. Zero fields get their defaults.
type Config struct {
	Device fabric.Device
	Queues int // data channels; default 1
	// Pools are lent on every data channel; default DefaultPools(MTU).
	Pools  []PoolConfig
	MTU    int // of the netdevice, to check what the peer sends; default 1500
	Timing fabric.Timing

	SendSlots   int // registered send buffers per data channel; default 64
	Batch       int // frames per doorbell at most; default 16
	BatchBytes  int // bytes after which a batch is posted; default 128 KiB
	SignalEvery int // one write in so many asks for a completion; default 16
	MaxInline   int // frames up to this many bytes are posted inline; default 220, negative: never
	// Spin is how long a receiver polls an empty completion queue before it
	// sleeps; default 0.
	Spin time.Duration

	// KeepAlive is the interval of keep-alive requests; default 250 ms. After
	// PeerTimeout, default 1 s, without any sign of life the peer is dead.
	KeepAlive   time.Duration
	PeerTimeout time.Duration

	// OnRequest answers the peer's configuration requests, one at a time, on a
	// goroutine of the Conn. data is only lent for the call. Keep-alives are
	// answered by the Conn itself. Nil answers protocol.CfgUnsupported.
	OnRequest func(t protocol.CfgType, data []byte) (protocol.CfgStatus, []byte)
}

func (c Config) withDefaults() Config {
	set := func(v *int, def int) {
		if *v == 0 {
			*v = def
		}
	}
	set(&c.Queues, 1)
	set(&c.MTU, 1500)
	set(&c.SendSlots, 64)
	set(&c.Batch, 16)
	set(&c.BatchBytes, 128<<10)
	set(&c.SignalEvery, 16)
	set(&c.MaxInline, 220)
	c.MaxInline = max(c.MaxInline, 0)
	if c.Pools == nil {
		c.Pools = DefaultPools(c.MTU)
	}
	if c.KeepAlive == 0 {
		c.KeepAlive = 250 * time.Millisecond
	}
	if c.PeerTimeout == 0 {
		c.PeerTimeout = time.Second
	}
	if c.OnRequest == nil {
		c.OnRequest = func(protocol.CfgType, []byte) (protocol.CfgStatus, []byte) {
			return protocol.CfgUnsupported, nil
		}
	}
	return c
}

func (c Config) check() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("messaging: "+format, args...)
	}
	switch {
	case c.Queues < 1 || c.Queues > MaxQueues:
		return bad("%d queues, must be 1 to %d", c.Queues, MaxQueues)
	case len(c.Pools) == 0 || len(c.Pools) > MaxPoolsPerChannel:
		return bad("%d pools per channel, must be 1 to %d", len(c.Pools), MaxPoolsPerChannel)
	case c.Batch < 1 || c.SignalEvery < 1:
		return bad("batch %d and signal-every %d must be at least 1", c.Batch, c.SignalEvery)
	case c.SendSlots <= c.SignalEvery+c.Batch:
		// Otherwise all slots could wait for a completion that nobody asked for.
		return bad("%d send slots, must be more than signal-every %d and batch %d together", c.SendSlots, c.SignalEvery, c.Batch)
	case c.PeerTimeout <= c.KeepAlive:
		return bad("peer timeout %v must exceed the keep-alive interval %v", c.PeerTimeout, c.KeepAlive)
	}
	for _, p := range c.Pools {
		if p.ElementSize < protocol.MinElementSize || p.ElementSize > protocol.MaxImmElementSize {
			return bad("pool elements of %d bytes, must be %d to %d", p.ElementSize, protocol.MinElementSize, protocol.MaxImmElementSize)
		}
		if p.Elements < 1 || p.Elements > protocol.MaxImmElements {
			return bad("pool of %d elements, must be 1 to %d", p.Elements, protocol.MaxImmElements)
		}
	}
	return nil
}
