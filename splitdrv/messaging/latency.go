package messaging

import (
	"cmp"
	"fmt"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/vnet"
)

// With Config.LatencyQueue the last data channel is the latency channel: for
// frames that are not to wait behind others. What makes a frame one of those,
// and puts it into the last port, is the business of who makes the ports. The
// channel has the same parts as the others, but no more memory than single
// frames need, its completions raise events at once, and its packets can be
// marked in another way.

const (
	// maxLatencyMTU bounds the frames of the latency channel: jumbo frames fit.
	maxLatencyMTU = 9216
	// latencyElements and latencyLarge are the elements of its pools, of the
	// usual size and of that of a frame of a larger MTU.
	latencyElements = 64
	latencyLarge    = 16
	// slotMargin is what a slot has besides the frame: the headroom that a port
	// and a message use before it, and a byte by which a port tells that a
	// frame is too long.
	slotMargin = slotSize - vnet.MaxFrame
)

// LatencyLimit is the largest number of bytes of an Ethernet frame, without the
// first VLAN tag, that both endpoints have room for on the latency channel when the
// largest MTU of the netdevice is mtu. Longer frames belong elsewhere.
func LatencyLimit(mtu int) int { return vnet.EthLen + vnet.TagLen + min(mtu, maxLatencyMTU) }

// LatencyPools are the size classes of the latency channel for a mode and the
// largest MTU.
func LatencyPools(mode protocol.Mode, mtu int) []PoolConfig {
	frame := vnet.HdrLen + vnet.TagLen + LatencyLimit(mtu)
	if mode.Sends() {
		return []PoolConfig{{ElementSize: roundUp(max(frame, 2048)+protocol.SendDataOverhead, 64), Elements: latencyElements}}
	}
	pools := []PoolConfig{{ElementSize: 2048, Elements: latencyElements}}
	if frame > pools[0].ElementSize {
		pools = append(pools, PoolConfig{ElementSize: roundUp(frame, 64), Elements: latencyLarge})
	}
	return pools
}

// isLatency reports whether a data channel is the latency channel.
func (c *Config) isLatency(number int) bool { return c.LatencyQueue && number == c.Queues }

// channel is the configuration of a data channel: that of the latency channel
// is another one.
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

// slots are how many send slots a channel may have, and of what size.
func (c *Config) slots(number int) (n, size int) {
	if !c.isLatency(number) {
		return c.SendSlots, slotSize
	}
	largest := 0
	for _, p := range c.LatencyPools {
		largest = max(largest, p.ElementSize)
	}
	// More of them can wait for a completion than one is asked for.
	return min(c.SendSlots, c.SignalEvery+c.Batch+8), min(roundUp(largest+slotMargin, 64), slotSize)
}

// checkLatency is check for what concerns the latency channel.
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
		if p.Elements > extraElements {
			return fmt.Errorf("messaging: a pool of %d elements of the latency channel, must be at most %d", p.Elements,
				extraElements)
		}
	}
	return checkPools(c.LatencyPools)
}
