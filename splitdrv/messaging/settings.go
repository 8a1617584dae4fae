package messaging

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/conform"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/capture"
	"github.com/splitnic/splitnic/splitdrv/device"
	"github.com/splitnic/splitnic/splitdrv/messaging/cq"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/control"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/memory"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/pools"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/rx"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/tx"
)

// This file derives from a Config: defaults, errors, sizes, and the options of the parts of a Conn.

// DefaultKeepAlive returns the default interval of keep-alives for a peer time-out: 500 ms,
// but at most half of the time-out, so that the peer has the other half to answer.
func DefaultKeepAlive(peerTimeout time.Duration) time.Duration {
	return min(500*time.Millisecond, peerTimeout/2)
}

func (c Config) withDefaults() Config {
	c.Mode = cmp.Or(c.Mode, protocol.ModeImm)
	c.Queues = cmp.Or(c.Queues, 1)
	c.MTU = cmp.Or(c.MTU, 1500)
	c.SendSlots = cmp.Or(c.SendSlots, 64)
	c.Batch = cmp.Or(c.Batch, min(32, max(c.SendSlots/4, 1)))
	c.BatchBytes = cmp.Or(c.BatchBytes, 128<<10)
	c.SignalEvery = cmp.Or(c.SignalEvery, 16)
	c.MaxInline = max(cmp.Or(c.MaxInline, DefaultInline), 0)
	c.PackCopy = max(cmp.Or(c.PackCopy, DefaultPackCopy), 0)
	if c.Pools == nil {
		c.Pools = DefaultPools(c.Mode, c.MTU)
	}
	if c.Mode.Sends() {
		c.MaxPools = cmp.Or(c.MaxPools, len(c.Pools))
		c.PeerPools = min(c.PeerPools, 1)
	}
	c.MaxPools = cmp.Or(c.MaxPools, min(len(c.Pools)+2, pools.MaxPools))
	c.PeerPools = cmp.Or(c.PeerPools, c.MaxPools)
	if c.LatencyQueue && c.LatencyPools == nil {
		c.LatencyPools = LatencyPools(c.Mode, c.MTU)
		// Pools with large elements also hold small frames.
		c.LatencyPools = c.LatencyPools[max(len(c.LatencyPools)-c.MaxPools, 0):]
	}
	c.PoolIdle = cmp.Or(c.PoolIdle, 10*time.Second)
	c.PeerTimeout = cmp.Or(c.PeerTimeout, time.Second)
	c.KeepAlive = cmp.Or(c.KeepAlive, DefaultKeepAlive(c.PeerTimeout))
	c.FlushTime = cmp.Or(c.FlushTime, 200*time.Millisecond)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Keys != nil {
		c.ZeroCopy = nil // lent memory belongs to others: nothing is sealed there
	}
	if c.OnHears == nil {
		c.OnHears = func(bool) {}
	}
	if c.Pace == nil {
		c.Pace = func(protocol.CfgType, []byte) time.Duration { return 0 }
	}
	if c.OnRequest == nil {
		c.OnRequest = func(protocol.CfgType, []byte) (protocol.CfgStatus, []byte) {
			return protocol.CfgUnsupported, nil
		}
	}
	return c
}

// Lends returns the largest number of pools that a Conn with this configuration lends on a
// data channel at a time. The handshake tells it to the peer.
func (c Config) Lends() int { return c.withDefaults().MaxPools }

// Check returns the error that New would return for an invalid configuration.
func (c Config) Check() error { return c.withDefaults().check() }

func (c Config) check() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("messaging: "+format, args...)
	}
	if _, err := protocol.ParseMode(string(c.Mode)); err != nil {
		return bad("%w", err)
	}
	switch {
	case c.Queues < 1 || c.Queues > cq.MaxQueues:
		return bad("%d queues, must be 1 to %d", c.Queues, cq.MaxQueues)
	case len(c.Pools) == 0 || len(c.Pools) > pools.MaxPools:
		return bad("%d pools per channel, must be 1 to %d", len(c.Pools), pools.MaxPools)
	case c.Mode.Sends() && (len(c.Pools) != 1 || c.MaxPools != 1):
		return bad("%d pools per channel, must be 1 in mode %s", max(len(c.Pools), c.MaxPools), c.Mode)
	case c.MaxPools < len(c.Pools) || c.MaxPools > pools.MaxPools:
		return bad("at most %d pools per channel, must be %d to %d", c.MaxPools, len(c.Pools), pools.MaxPools)
	case c.PeerPools < 1 || c.PeerPools > pools.MaxPools:
		return bad("the peer lends at most %d pools per channel, must be 1 to %d", c.PeerPools, pools.MaxPools)
	case c.PoolIdle < time.Millisecond:
		return bad("pools that go back after %v without use, must be 1 ms at least", c.PoolIdle)
	case c.Batch < 1 || c.SignalEvery < 1:
		return bad("batch %d and signal-every %d must be at least 1", c.Batch, c.SignalEvery)
	case c.SendSlots <= c.SignalEvery+c.Batch:
		// Otherwise all slots could be in flight and unsignaled.
		return bad("%d send slots, must be more than signal-every %d and batch %d together", c.SendSlots, c.SignalEvery,
			c.Batch)
	case c.ServiceLevel > 15:
		return bad("service level %d, must be up to 15", c.ServiceLevel)
	case c.Keys != nil && c.KeySend:
		return bad("keys of pools between the transfers would not be sealed")
	case c.PeerTimeout <= c.KeepAlive:
		return bad("peer timeout %v must exceed the keep-alive interval %v", c.PeerTimeout, c.KeepAlive)
	}
	if c.Protection != "" {
		if _, err := ParseProtection(string(c.Protection)); err != nil {
			return bad("%w", err)
		}
	}
	if err := c.checkHandlers(); err != nil {
		return bad("%w", err)
	}
	if err := c.Moderation.Check(); err != nil {
		return bad("moderation: %w", err)
	}
	if err := checkPools(c.Pools); err != nil {
		return err
	}
	if n := c.elements(); n > pools.MaxChannelElements {
		return bad("pools of up to %d elements in all per channel, must be at most %d", n, pools.MaxChannelElements)
	}
	return c.checkLatency()
}

// elements returns the largest total number of elements of the pools of a data channel. A
// peer may return any of the first pools, and be lent another one in its place.
func (c *Config) elements() int {
	n := c.MaxPools * pools.ExtraElements
	for _, p := range c.Pools {
		n += max(p.Elements-pools.ExtraElements, 0)
	}
	return n
}

// receives returns the largest number of posted receives of a data channel.
func (c *Config) receives() int {
	if c.Mode.Indicated() {
		return c.furtherReceives()
	}
	return c.elements() + c.furtherReceives()
}

// furtherReceives returns how many receives a data channel has posted in addition to those
// for elements.
func (c *Config) furtherReceives() int {
	n := 0
	if c.Mode.Indicated() {
		n++ // to detect a peer that uses immediate data
	}
	if c.invalidates() {
		// For the messages that invalidate the pools' windows. The receives for elements
		// may all be used up by then.
		n += c.MaxPools
	}
	if c.KeySend && !c.Mode.Sends() {
		n += c.PeerPools // for the messages with the keys of the peer's pools
	}
	return n
}

// controlReceives returns how many receives this side posts on the control channel.
func (c *Config) controlReceives() int {
	return protocol.ControlReceives(c.Mode, c.Queues, c.PeerPools)
}

// controlSlots returns the number of send slots of the control channel. A message occupies a slot until its
// completion is polled, which can be after the peer has handled it. Therefore there are twice as many slots
// as messages in flight.
func (c *Config) controlSlots() int {
	return 2 * protocol.ControlReceives(c.Mode, c.Queues, c.MaxPools)
}

// LeastMemory returns how many bytes a session with this configuration registers at its
// beginning. On systems with huge pages it can be more.
func (c Config) LeastMemory() int64 {
	c = c.withDefaults()
	n := memory.PageUp((c.controlSlots() + c.controlReceives()) * control.SlotSize(c.Keys != nil))
	for i := range c.Queues {
		count, size := c.slots(i + 1)
		n += memory.PageUp(min(count, pools.FirstSlots) * size)
		for _, p := range c.channel(i + 1).Pools {
			n += p.Bytes()
		}
	}
	return int64(n)
}

func (c *Config) limitPath(addresses []fabric.Address) {
	for i := range addresses {
		if c.PathMTU > 0 {
			addresses[i].MTU = min(addresses[i].MTU, c.PathMTU)
		}
	}
}

// vectors returns the number of completion vectors of the device.
func (c *Config) vectors() int {
	if c.Device == nil {
		return 1
	}
	return max(c.Device.Limits().CompVectors, 1)
}

// Handling returns the handlers and assignments with which a Conn begins.
func (c Config) Handling() cq.Handling {
	c = c.withDefaults()
	n := min(c.vectors(), c.Queues)
	latency := c.LatencyQueue && c.Queues > 1
	if latency {
		n = min(c.vectors(), c.Queues-1) + 1
	}
	if c.Handlers != nil {
		n = 1
	}
	for _, h := range c.Handlers {
		n = max(n, min(h.Number, cq.MaxHandlers)) // checkHandlers rejects larger numbers
	}
	g := cq.Handling{Handlers: make([]cq.Handler, 1+n), Assigned: make([]int, c.Queues)}
	for i := range g.Handlers {
		g.Handlers[i] = cq.Handler{Number: i, Budget: cq.DefaultBudget, Spin: c.Spin, Adaptive: c.SpinAdaptive}
	}
	g.Handlers[cq.ControlHandler].Spin, g.Handlers[cq.ControlHandler].Adaptive = 0, false
	for _, h := range c.Handlers {
		if h.Number < 0 || h.Number > n {
			continue
		}
		h.Budget = cmp.Or(h.Budget, cq.DefaultBudget)
		h.CPUs = slices.Clone(h.CPUs)
		g.Handlers[h.Number] = h
	}
	copy(g.Assigned, c.Assigned)
	for i := range g.Assigned {
		switch {
		case g.Assigned[i] != 0:
		case !latency || n == 1:
			g.Assigned[i] = g.Initial(i + 1)
		case c.isLatency(i + 1): // the latency channel has the last handler for itself
			g.Assigned[i] = n
		default:
			g.Assigned[i] = 1 + i%(n-1)
		}
	}
	return g
}

// SetHandling changes c so that a Conn begins with g.
func (c *Config) SetHandling(g cq.Handling) {
	c.Handlers, c.Assigned = g.Handlers, g.Assigned
}

// checkHandlers returns an error if the handlers are invalid. Handling ignores some of these
// errors.
func (c *Config) checkHandlers() error {
	seen := map[int]bool{}
	for _, h := range c.Handlers {
		if h.Number < 0 || h.Number > cq.MaxHandlers || seen[h.Number] {
			return fmt.Errorf("handler %d: %w: must be 0 to %d, and each once", h.Number, cq.ErrHandler, cq.MaxHandlers)
		}
		seen[h.Number] = true
	}
	g := c.Handling()
	return g.Check(nil)
}

// chooseProtection returns the protection in force. In addition to ChooseProtection it considers the
// transfer mode and the features of the peer.
func (c *Config) chooseProtection(w conform.Windows) (ProtectionInForce, error) {
	switch {
	case c.Mode.Sends():
		return ProtectionInForce{ProtectRegion, fmt.Sprintf("mode %s lends no memory", c.Mode)}, nil
	case c.Protection == ProtectOneTouch && !c.OneTouch:
		return ProtectionInForce{}, fmt.Errorf("protection %s: %w", c.Protection, ErrOneTouch)
	}
	return ChooseProtection(c.Protection, w)
}

// windows returns what the memory windows of the device are worth.
func (c *Config) windows() conform.Windows {
	if c.Mode.Sends() || c.Protection == ProtectRegion {
		return conform.Windows{} // they are not used, and need not be tried
	}
	return device.WindowsOf(c.Device)
}

// invalidates reports whether the peer invalidates the windows of flushed pools, by a SEND
// with invalidate.
func (c *Config) invalidates() bool { return c.Protection == ProtectWindow && c.Invalidation }

func (c *Config) control() *control.Options {
	return &control.Options{
		TrafficClass: c.TrafficClass, ServiceLevel: c.ServiceLevel, Poll: c.Poll,
		KeepAlive: c.KeepAlive, PeerTimeout: c.PeerTimeout, AskLast: c.AskLast, OnHears: c.OnHears,
		OnRequest: c.OnRequest, Pace: c.Pace,
	}
}

func (c *Config) pools(windowBounds bool) pools.Options {
	return pools.Options{
		Channels: c.Queues, PeerPools: c.PeerPools, Idle: c.PoolIdle, Budget: c.Budget, Now: c.Now,
		Windows: c.Protection == ProtectWindow, OneTouch: c.Protection == ProtectOneTouch, WindowBounds: windowBounds,
		StrictOrdering: c.StrictOrdering, Invalidation: c.Invalidation, KeySend: c.KeySend, PeerOneTouch: c.OneTouch,
	}
}

// sender returns the settings of the sender of a data channel.
func (c *Config) sender(number int) *tx.Options {
	return &tx.Options{
		SendSlots: c.SendSlots, Batch: c.Batch, BatchBytes: c.BatchBytes, SignalEvery: c.SignalEvery,
		PackCopy: c.PackCopy, NoPack: c.NoPack, MaxSGE: c.Device.Limits().MaxSGE,
		OneTouch: c.Protection == ProtectOneTouch, ZeroCopy: c.ZeroCopy, Path: c.path(number), Poll: c.Poll,
	}
}

// receiver returns the settings of the receiver of a data channel.
func (c *Config) receiver(number int) rx.Options {
	return rx.Options{
		Receives: c.receives(), Invalidates: c.invalidates(), KeySend: c.KeySend, NoPack: c.NoPack,
		Path: c.path(number), Poll: c.Poll,
	}
}

// path returns the capture path of a data channel, or nil if there is none.
func (c *Config) path(number int) *capture.Path {
	if c.Capture == nil {
		return nil
	}
	return c.Capture(number - 1)
}
