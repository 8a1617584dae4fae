package messaging

import (
	"fmt"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/spin"
	"github.com/splitnic/splitnic/internal/ticker"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/capture"
	"github.com/splitnic/splitnic/vnet"
)

const (
	// MaxPools is the largest number of pools that a side may lend on one data
	// channel at a time.
	MaxPools = 64
	// MaxElements is the largest number of elements of a pool that this side
	// lends: a quarter of them, which makes an update due, fits one message.
	MaxElements = 4096
	// MaxChannelElements is the largest number of elements that the pools lent on
	// one data channel have in all, by either side: it bounds the books that a
	// peer makes us keep.
	MaxChannelElements = protocol.MaxPoolElements
	// MaxElementSize is the size in bytes of the largest such element.
	MaxElementSize = slotSize
	// MaxRequests is how many requests a side may have unanswered.
	MaxRequests = 4

	// slotSize holds the largest frame, and the headroom that a port and
	// SendData use before it.
	slotSize = 1<<16 + 128
	// firstSlots is how many send slots a data channel begins with: as many as one needs
	// that sends a frame now and then.
	firstSlots = 8
	// DefaultPackCopy is Config.PackCopy unless it says otherwise, and MaxPackCopy the
	// largest value that makes a difference.
	DefaultPackCopy = 256
	MaxPackCopy     = protocol.MaxImmLength
	// extraElements bounds the pools that are lent on request: immediate data
	// can name all their elements.
	extraElements = protocol.MaxImmElements
)

// PoolConfig is one size class of the pools lent to the peer.
type PoolConfig struct {
	ElementSize int // bytes, virtio_net_hdr included; up to MaxElementSize
	Elements    int // per data channel; up to MaxElements
}

func (p PoolConfig) bytes() int { return pageUp(p.ElementSize * p.Elements) }

// checkPools is check for the pools of a data channel.
func checkPools(pools []PoolConfig) error {
	for _, p := range pools {
		if p.ElementSize < protocol.MinElementSize || p.ElementSize > MaxElementSize {
			return fmt.Errorf("messaging: pool elements of %d bytes, must be %d to %d", p.ElementSize, protocol.MinElementSize,
				MaxElementSize)
		}
		if p.Elements < 1 || p.Elements > MaxElements {
			return fmt.Errorf("messaging: pool of %d elements, must be 1 to %d", p.Elements, MaxElements)
		}
	}
	return nil
}

// path is where the frames of a data channel can be captured, nil for nowhere.
func (c *Config) path(number int) *capture.Path {
	if c.Capture == nil {
		return nil
	}
	return c.Capture(number - 1)
}

// DefaultPools are the size classes for a mode and an MTU: single frames, and
// segments that a network card or the kernel has still to cut up. In the send
// modes there is one class, because a receive does not choose its message.
func DefaultPools(mode protocol.Mode, mtu int) []PoolConfig {
	largest := protocol.MaxImmElementSize
	frame := vnet.HdrLen + vnet.EthLen + vnet.TagLen + mtu
	if frame > protocol.MaxImmLength {
		largest = roundUp(vnet.MaxFrame, 64)
	}
	if mode.Sends() {
		return []PoolConfig{{ElementSize: roundUp(vnet.MaxFrame+protocol.SendDataOverhead, 64), Elements: 64}}
	}
	pools := []PoolConfig{{ElementSize: 2048, Elements: 256}}
	if frame > pools[0].ElementSize && frame < largest/2 {
		pools = append(pools, PoolConfig{ElementSize: roundUp(frame, 1024), Elements: 64})
	}
	return append(pools, PoolConfig{ElementSize: largest, Elements: 32})
}

// Config says what a Conn is made of. Zero fields get their defaults. It has as many
// fields as a session has choices, each of them a setting of its user's; nothing changes
// them later.
type Config struct {
	Device fabric.Device
	Mode   protocol.Mode // how frames are transferred; default protocol.ModeImm
	Queues int           // data channels; default 1
	// Pools are lent on every data channel from the start; default
	// DefaultPools(Mode, MTU). MaxPools is how many may be lent there at a
	// time, when the peer asks for more; default two more than Pools, and in
	// the send modes always one. PeerPools is the same number of the peer's;
	// default MaxPools, and in the send modes one whatever it says.
	Pools     []PoolConfig
	MaxPools  int
	PeerPools int
	// PoolIdle is after how long without use a pool goes back that was lent on
	// request; default 10 s. The initiator gives it back then, and the target
	// takes it back after twice as long.
	PoolIdle time.Duration
	// MaxMemory bounds the bytes registered for the session, 0: only MaxPools
	// does. Budget, which may be nil, bounds them together with others.
	MaxMemory int64
	Budget    *Budget
	// ZeroCopy bounds the memory of a ZeroCopyPort's that is registered for sessions, to send
	// frames from where they lie; nil: none is, and frames are copied. It is apart from
	// MaxMemory and Budget, which are about what sessions allocate.
	ZeroCopy *Budget
	MTU      int // of the netdevice, to check what the peer sends; default 1500
	// Protection bounds the peer to the pools that it is lent; default what
	// ProtectionOn says.
	Protection Protection
	// StrictOrdering has the device write to pools in order. Otherwise those that have no
	// window around them are registered with fabric.Relaxed.
	StrictOrdering bool
	// Invalidation says that both sides have protocol.FeatureWindow: each
	// invalidates the window around a pool of the other's as its last word about
	// that. Otherwise who lent it does.
	Invalidation bool
	// KeySend says that both sides have protocol.FeatureKeySend: the key of the window
	// around a pool that was asked for is sent behind the bind, in the same post, and
	// the pool offered meanwhile. Otherwise it is offered when the bind has completed.
	KeySend bool
	// OneTouch says that both sides have protocol.FeatureOneTouch: pools that
	// they lend may be one-touch pools.
	OneTouch bool
	Timing   fabric.Timing
	// TrafficClass and ServiceLevel mark the packets of all channels, as in
	// fabric.QPConfig.
	TrafficClass uint8
	ServiceLevel uint8
	// LatencyQueue makes the last of the data channels, of which there are two
	// at least, the latency channel. LatencyPools are lent there instead of
	// Pools; default LatencyPools(Mode, MTU). LatencyTrafficClass and
	// LatencyServiceLevel mark its packets; 0 as those of the others.
	LatencyQueue        bool
	LatencyPools        []PoolConfig
	LatencyTrafficClass uint8
	LatencyServiceLevel uint8
	// Moderation is of the data channels' completion queues; a device that has
	// none raises every event.
	Moderation Moderation

	// NoPack keeps several small frames from travelling in one transfer, in
	// either direction: for a peer that does not understand packs.
	NoPack bool

	SendSlots   int // registered send buffers per data channel, in the end: see sendSlots; default 64
	Batch       int // frames per doorbell at most; default a quarter of SendSlots, at most 32
	BatchBytes  int // bytes after which a batch is posted; default 128 KiB
	SignalEvery int // one slot in so many asks for a completion; default 16
	MaxInline   int // frames up to this many bytes are posted inline; default 220, negative: never
	// PackCopy is up to how many bytes a frame of a pack is copied behind the one before it.
	// The device gathers longer ones from their slots. Default DefaultPackCopy, negative:
	// all are gathered.
	PackCopy int
	// Poll has one worker for each data channel, which drives both directions and
	// never sleeps: the least latency, for a processor each. It is for benchmarks.
	Poll bool
	// Handlers are the completion-queue handlers by number; those that are not
	// listed have their defaults. Default: for data as many as the device has
	// completion vectors, and no more than Queues, and one for the latency
	// channel.
	Handlers []Handler
	// Assigned are the handlers of data channels 1, 2 …; the default, 0, deals
	// the channels out to the handlers in turn, but for the latency channel: if
	// there are two handlers it has the last one to itself.
	Assigned []int
	// Spin and SpinAdaptive are Handler.Spin and Handler.Adaptive of the handlers for data
	// that are not listed. SpinLimit is that of the process, which all its sessions share; nil
	// lets no adaptive handler poll.
	Spin         time.Duration
	SpinAdaptive bool
	SpinLimit    *spin.Limit

	// Bind, if not nil, has both sides prove with their first messages that they
	// are those of a connection besides, and nothing happens before.
	Bind *Binding

	// KeepAlive is the interval of keep-alive requests; the default is
	// DefaultKeepAlive. After PeerTimeout, default 1 s, without any sign of life the
	// peer is dead.
	KeepAlive   time.Duration
	PeerTimeout time.Duration
	// AskLast leaves keep-alives to the peer for a moment longer: with a peer that has
	// the same interval and does not, one of the two is enough.
	AskLast bool
	// OnHears, which may be nil, is told when the peer begins to be heard, and when it
	// has not been heard within KeepAlive. It must not wait.
	OnHears func(bool)
	// FlushTime is what Flush takes at most; default 200 ms.
	FlushTime time.Duration

	// OnRequest answers the peer's configuration requests, one at a time, on a
	// goroutine of the Conn. data is only lent for the call. Keep-alives,
	// protocol.CfgSent and protocol.CfgBind are answered by the Conn itself. Nil
	// answers protocol.CfgUnsupported.
	OnRequest func(t protocol.CfgType, data []byte) (protocol.CfgStatus, []byte)
	// Pace is asked once about each of these, in order, and says for how long it
	// has to wait. Nil is for a peer that may ask as fast as it likes.
	Pace func(t protocol.CfgType, data []byte) time.Duration

	// Capture, which may be nil, is the path by which the frames of a queue, the first
	// one is 0, can be captured.
	Capture func(queue int) *capture.Path

	now   func() time.Time // the clock of what is lent on request; tests set it
	clock *ticker.Clock    // of keep-alives, if not that of those with the same interval; tests set it
}
