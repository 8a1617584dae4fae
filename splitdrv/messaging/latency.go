package messaging

import (
	"cmp"
	"fmt"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/memory"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/pools"
	"github.com/splitnic/splitnic/vnet"
)

// With Config.LatencyQueue the last data channel is the latency channel, for frames that
// must not wait behind others. The owner of the ports decides which frames go to the last
// port. The channel works like the others, except that it has memory for single frames
// only, that its completions raise events immediately, and that its packets can be marked
// differently.

const (
	// maxLatencyMTU bounds the frames of the latency channel: jumbo frames fit.
	maxLatencyMTU = 9216
	// latencyElements and latencyLarge are the numbers of elements of its pools: of the
	// pool with elements of the usual size, and of the pool for frames of a larger MTU.
	latencyElements = 64
	latencyLarge    = 16
	// slotMargin is the part of a slot that is not for the frame: the headroom that a port
	// and a message need before it, and a byte with which a port detects that a frame is
	// too long.
	slotMargin = pools.SlotSize - vnet.MaxFrame
)

// LatencyLimit returns the size in bytes of the largest Ethernet frame, without the first
// VLAN tag, that may use the latency channel if the largest MTU of the netdevice is mtu.
// Both endpoints have room for such frames. Longer frames must use another channel.
func LatencyLimit(mtu int) int { return vnet.EthLen + vnet.TagLen + min(mtu, maxLatencyMTU) }

// LatencyPools returns the pools of the latency channel for a mode and the largest MTU. Frames may be
// encrypted.
func LatencyPools(mode protocol.Mode, mtu int) []PoolConfig {
	frame := vnet.HdrLen + vnet.TagLen + LatencyLimit(mtu) + protocol.SealOverhead
	if mode.Sends() {
		n := memory.RoundUp(max(frame, 2048)+protocol.SendDataOverhead, 64)
		return []PoolConfig{{ElementSize: n, Elements: latencyElements}}
	}
	sizes := []PoolConfig{{ElementSize: 2048, Elements: latencyElements}}
	if frame > sizes[0].ElementSize {
		sizes = append(sizes, PoolConfig{ElementSize: memory.RoundUp(frame, 64), Elements: latencyLarge})
	}
	return sizes
}

func (c *Config) isLatency(number int) bool { return c.LatencyQueue && number == c.Queues }

// channel returns the configuration of a data channel. That of the latency channel differs
// from c.
func (c *Config) channel(number int) *Config {
	if !c.isLatency(number) {
		return c
	}
	l := *c
	l.Pools = c.LatencyPools
	l.Moderation = Moderation{}
	l.TrafficClass = cmp.Or(c.LatencyTrafficClass, c.TrafficClass)
	l.ServiceLevel = cmp.Or(c.LatencyServiceLevel, c.ServiceLevel)
	return &l
}

// slots returns the largest number of send slots of a channel, and their size in bytes.
func (c *Config) slots(number int) (n, size int) {
	if !c.isLatency(number) {
		return c.SendSlots, pools.SlotSize
	}
	largest := 0
	for _, p := range c.LatencyPools {
		largest = max(largest, p.ElementSize)
	}
	// More than SignalEvery, so that a completion is due before all slots are in flight.
	return min(c.SendSlots, c.SignalEvery+c.Batch+8), min(memory.RoundUp(largest+slotMargin, 64), pools.SlotSize)
}

func (c *Config) checkLatency() error {
	if !c.LatencyQueue {
		return nil
	}
	if c.Queues < 2 {
		return fmt.Errorf("messaging: %d queues with a latency channel, must be at least 2", c.Queues)
	}
	if n := len(c.LatencyPools); n == 0 || n > c.MaxPools {
		return fmt.Errorf("messaging: %d pools of the latency channel, must be 1 to %d", n, c.MaxPools)
	}
	for _, p := range c.LatencyPools {
		if p.Elements > pools.ExtraElements {
			return fmt.Errorf("messaging: a pool of %d elements of the latency channel, must be at most %d", p.Elements,
				pools.ExtraElements)
		}
	}
	return checkPools(c.LatencyPools)
}
