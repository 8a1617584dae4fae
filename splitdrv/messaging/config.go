package messaging

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/spin"
	"github.com/splitnic/splitnic/internal/ticker"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/capture"
	"github.com/splitnic/splitnic/splitdrv/messaging/cq"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/memory"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/pools"
	"github.com/splitnic/splitnic/splitdrv/seal"
	"github.com/splitnic/splitnic/vnet"
)

const (
	// DefaultInline is the default of Config.MaxInline, and LargestInline its largest useful
	// value.
	DefaultInline = 220
	LargestInline = 4096
	// DefaultPackCopy is the default of Config.PackCopy, and MaxPackCopy its largest useful
	// value.
	DefaultPackCopy = 256
	MaxPackCopy     = protocol.MaxImmLength
)

// checkPools checks the configured pools of a data channel.
func checkPools(sizes []PoolConfig) error {
	for _, p := range sizes {
		if p.ElementSize < protocol.MinElementSize || p.ElementSize > pools.MaxElementSize {
			return fmt.Errorf("messaging: pool elements of %d bytes, must be %d to %d", p.ElementSize, protocol.MinElementSize,
				pools.MaxElementSize)
		}
		if p.Elements < 1 || p.Elements > pools.MaxElements {
			return fmt.Errorf("messaging: pool of %d elements, must be 1 to %d", p.Elements, pools.MaxElements)
		}
	}
	return nil
}

// DefaultPools returns the pools for a mode and an MTU: for single frames, and for
// super-frames, which a network card or the kernel still has to segment, both with the tag of
// encryption. In the send modes
// there is one pool, because any message can arrive in any receive.
func DefaultPools(mode protocol.Mode, mtu int) []PoolConfig {
	largest := protocol.MaxImmElementSize
	frame := vnet.HdrLen + vnet.EthLen + vnet.TagLen + mtu + protocol.SealOverhead
	if frame > protocol.MaxImmLength {
		largest = memory.RoundUp(vnet.MaxFrame+protocol.SealOverhead, 64)
	}
	if mode.Sends() {
		return []PoolConfig{{ElementSize: memory.RoundUp(protocol.MaxSendData, 64), Elements: 64}}
	}
	sizes := []PoolConfig{{ElementSize: 2048, Elements: 256}}
	if frame > sizes[0].ElementSize && frame < largest/2 {
		sizes = append(sizes, PoolConfig{ElementSize: memory.RoundUp(frame, 1024), Elements: 64})
	}
	return append(sizes, PoolConfig{ElementSize: largest, Elements: 32})
}

// Config is the configuration of a Conn. Zero fields get their defaults. Each field is an
// independent setting of the caller, and no field changes later; hence their number.
type Config struct {
	Device fabric.Device
	Mode   protocol.Mode // how frames are transferred; default protocol.ModeImm
	Queues int           // data channels; default 1
	// Pools are lent on every data channel from the start; default
	// DefaultPools(Mode, MTU). MaxPools is the largest number of pools lent on a
	// data channel at a time, including those that the peer asks for; default two
	// more than Pools, in the send modes always one. PeerPools is the MaxPools of
	// the peer; default MaxPools, in the send modes always one.
	Pools     []PoolConfig
	MaxPools  int
	PeerPools int
	// PoolIdle is the time without use after which the initiator returns a pool
	// that was lent on request; default 10 s. The target takes the pool back after
	// twice that time.
	PoolIdle time.Duration
	// MaxMemory is the most bytes to register for the session; 0: only MaxPools
	// bounds them. Budget, which may be nil, bounds them together with other sessions.
	MaxMemory int64
	Budget    *memory.Budget
	// ZeroCopy bounds the memory of a ZeroCopyPort that is registered in order to send
	// frames without a copy; nil: frames are copied. It is separate from MaxMemory and
	// Budget, which bound the memory that sessions allocate.
	ZeroCopy *memory.Budget
	MTU      int // of the netdevice in bytes, to check the peer's frames; default 1500
	// Protection limits the peer's access to the pools that it is lent; see ChooseProtection
	// for the default.
	Protection Protection
	// StrictOrdering makes the device write to pools in order. Otherwise pools without
	// windows are registered with fabric.Relaxed.
	StrictOrdering bool
	// Invalidation is true if both sides have protocol.FeatureWindow: when a side stops
	// using a remote pool, it invalidates the pool's window with its last message about
	// the pool. Otherwise the side that has lent the pool invalidates it.
	Invalidation bool
	// KeySend is true if both sides have protocol.FeatureKeySend: for a pool that was
	// asked for, the key of its window is sent behind the bind, in the same post, and the
	// pool is offered at the same time. Otherwise it is offered when the bind has completed.
	KeySend bool
	// OneTouch is true if both sides have protocol.FeatureOneTouch, so that the pools that
	// they lend may be one-touch pools.
	OneTouch bool
	Timing   fabric.Timing
	// TrafficClass and ServiceLevel mark the packets of all channels, as in
	// fabric.QPConfig.
	TrafficClass uint8
	ServiceLevel uint8
	// LatencyQueue makes the last of at least two data channels the latency channel.
	// LatencyPools are lent there instead of Pools; default LatencyPools(Mode, MTU).
	// LatencyTrafficClass and LatencyServiceLevel mark its packets; 0: like those of
	// the others.
	LatencyQueue        bool
	LatencyPools        []PoolConfig
	LatencyTrafficClass uint8
	LatencyServiceLevel uint8
	// EndsWithPort ends the session when an event says that the device's port is down. Otherwise
	// a session survives that for PeerTimeout.
	EndsWithPort bool
	// Moderation is the moderation of the data channels' completion queues. A device
	// without moderation raises every event.
	Moderation Moderation

	// NoPack disables packs in both directions, for a peer that does not know them.
	NoPack bool

	SendSlots   int // largest number of send slots per data channel: see Slots; default 64
	Batch       int // most frames per doorbell; default a quarter of SendSlots, at most 32
	BatchBytes  int // bytes after which a batch is posted; default 128 KiB
	SignalEvery int // number of slots of which one is signaled; default 16
	// MaxInline is the size in bytes up to which transfers are posted inline, if the device
	// grants that for the queue pairs. Default DefaultInline; negative: never.
	MaxInline int
	// PackCopy is the size in bytes up to which a frame of a pack is copied behind the frame
	// before it. The device gathers longer frames from their slots. Default
	// DefaultPackCopy; negative: all frames are gathered.
	PackCopy int
	// Poll replaces sender, receiver and control handler by one worker for each data
	// channel, which never sleeps. It has the least latency, and uses a processor for each
	// data channel. It is meant for benchmarks.
	Poll bool
	// Handlers are the completion-queue handlers, by number. Handlers that are not listed
	// have default settings. By default there are as many handlers for data as the device
	// has completion vectors, at most Queues, and one more for the latency channel.
	Handlers []cq.Handler
	// Assigned are the numbers of the handlers of data channels 1, 2 … With the default,
	// 0, the handlers are assigned in turn, except that the latency channel gets the last
	// handler for itself if there are at least two.
	Assigned []int
	// Spin and SpinAdaptive are Handler.Spin and Handler.Adaptive of the handlers for data
	// that are not listed. SpinLimit limits the polling of all sessions of the process;
	// with nil adaptive handlers never poll.
	Spin         time.Duration
	SpinAdaptive bool
	SpinLimit    *spin.Limit

	// Bind, if not nil, makes both sides prove with their first messages that they are
	// the sides of another, authenticated connection. Nothing else happens before.
	Bind *Binding

	// ProvePath is true if both sides have protocol.FeaturePathMTU: with Bind, each side
	// shows that packets of the path MTU get through. PathMTU is the largest path MTU in bytes to use; 0: the
	// port's.
	ProvePath bool
	PathMTU   int

	// Keys, if not nil, encrypt and authenticate all frames and messages of both directions. Both
	// sides have the same secret. KeySend must be false then, and ZeroCopy is not used.
	Keys *seal.Keys

	// KeepAlive is the interval of keep-alive requests; default DefaultKeepAlive. The
	// session ends when the peer has been silent for PeerTimeout; default 1 s.
	KeepAlive   time.Duration
	PeerTimeout time.Duration
	// AskLast delays keep-alives slightly. If only one of two sides with the same interval
	// sets it, the other one sends them, and its requests suffice for both.
	AskLast bool
	// OnHears, which may be nil, is called with true when the peer is heard again, and
	// with false when it has not been heard within KeepAlive. It must not wait.
	OnHears func(bool)
	// FlushTime is the longest time that Flush may take; default 200 ms.
	FlushTime time.Duration

	// OnRequest answers the peer's configuration requests, one at a time, on a
	// goroutine of the Conn. data is valid only during the call. Conn answers
	// protocol.CfgKeepAlive, CfgSent, CfgBind, CfgPath and CfgPoolKeys itself. With nil the
	// answer is protocol.CfgUnsupported.
	OnRequest func(t protocol.CfgType, data []byte) (protocol.CfgStatus, []byte)
	// Pace is called once for each of these requests, in order, and returns how long
	// the request has to wait. With nil there is no limit.
	Pace func(t protocol.CfgType, data []byte) time.Duration

	// Capture, which may be nil, returns the capture path of a queue; the first queue is 0.
	Capture func(queue int) *capture.Path

	// Now is the clock of the limit on pools lent on request, default time.Now. Clock is that
	// of keep-alives; default: one that all sessions with the same interval share.
	Now   func() time.Time
	Clock *ticker.Clock
}

// Binding ties the channels of a session to the connection over which their addresses were
// exchanged. Its string methods do not show the secret.
type Binding struct {
	secret [32]byte
	host   bool
}

// NewBinding returns the binding of the host's side, or of the I/O unit's side, of a
// connection. secret must be known only to its two sides.
func NewBinding(secret [32]byte, host bool) *Binding { return &Binding{secret: secret, host: host} }

func (b Binding) String() string { return "binding" }

// GoString implements fmt.GoStringer.
func (b Binding) GoString() string { return "messaging.Binding" }

// Proofs returns the proof that this side has to send first on the control channel, and the
// one that it has to receive first. own and remote are the addresses of the queue pairs of
// both sides, in the order of Conn.Addresses.
func (b *Binding) Proofs(own, remote []fabric.Address) (ours, theirs protocol.Proof) {
	host, unit := boundChannels(own), boundChannels(remote)
	if !b.host {
		host, unit = unit, host
	}
	ours = protocol.MakeProof(b.secret[:], b.host, host, unit)
	theirs = protocol.MakeProof(b.secret[:], !b.host, host, unit)
	return ours, theirs
}

func boundChannels(addresses []fabric.Address) []protocol.BoundChannel {
	channels := make([]protocol.BoundChannel, len(addresses))
	for i, addr := range addresses {
		channels[i] = protocol.BoundChannel{QPN: addr.QPN, PSN: addr.PSN, LID: addr.LID, GID: addr.GID}
	}
	return channels
}

// Moderation is the moderation of a completion queue (ibv_modify_cq(3)): the device raises
// an event after Count completions, or Period after the first one. The zero value means no
// moderation.
type Moderation struct {
	Count  int           // 1 to 65535
	Period time.Duration // whole microseconds, up to 65.535 ms
}

// Check returns an error if fabric.Moderator does not accept m.
func (m Moderation) Check() error {
	switch {
	case m == Moderation{}:
	case m.Count < 1 || m.Count > math.MaxUint16:
		return fmt.Errorf("an event for %d completions, must be 1 to %d", m.Count, math.MaxUint16)
	case m.Period < 0 || m.Period > math.MaxUint16*time.Microsecond || m.Period%time.Microsecond != 0:
		return fmt.Errorf("an event after %v, must be whole microseconds up to %v", m.Period, math.MaxUint16*time.Microsecond)
	case m.Count > 1 && m.Period == 0:
		// The last completions of a burst would never raise an event.
		return fmt.Errorf("an event for %d completions and no period after which it comes anyway", m.Count)
	}
	return nil
}

// apply moderates the queues, and reports whether the device can do that. A device without
// moderation is not an error.
func (m Moderation) apply(queues ...fabric.CQ) (bool, error) {
	if (m == Moderation{}) {
		return false, nil
	}
	for _, cq := range queues {
		q, ok := cq.(fabric.Moderator)
		if !ok {
			return false, nil
		}
		if err := q.Moderate(m.Count, m.Period); errors.Is(err, fabric.ErrUnsupported) {
			return false, nil
		} else if err != nil {
			return false, err
		}
	}
	return true, nil
}
