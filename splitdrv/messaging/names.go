package messaging

import (
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/control"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/core"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/memory"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/pools"
	"github.com/splitnic/splitnic/splitdrv/seal"
)

// The types of the parts of a Conn that its users need.
type (
	// Port is one queue of a netdevice.
	Port = core.Port
	// PacedPort is a Port with a rate limit.
	PacedPort = core.PacedPort
	// WriteFDer is a Port with a separate descriptor for writing.
	WriteFDer = core.WriteFDer
	// ReadablePort is a WriteFDer whose descriptor is readable when frames may be written.
	ReadablePort = core.ReadablePort
	// SharedPort is a Port on a queue that other readers share.
	SharedPort = core.SharedPort
	// ZeroCopyPort is a Port that lends its frames.
	ZeroCopyPort = core.ZeroCopyPort

	// PoolConfig is the size of a pool that is lent to the peer.
	PoolConfig = pools.Config
	// Budget limits the total registered memory of several sessions.
	Budget = memory.Budget

	// TxCounters count what a sender does.
	TxCounters[T any] = core.TxCounters[T]
	// RxCounters count what a receiver does.
	RxCounters[T any] = core.RxCounters[T]

	// ProtocolError ends a session because the peer broke the protocol.
	ProtocolError = core.ProtocolError
	// StatusError is a request that the peer answered with another status than CfgOK.
	StatusError = control.StatusError
)

// The limits of what a side lends and asks.
const (
	MaxPools           = pools.MaxPools
	MaxElements        = pools.MaxElements
	MaxChannelElements = pools.MaxChannelElements
	MaxElementSize     = pools.MaxElementSize
	MaxRequests        = control.MaxRequests
)

// The reasons for the end of a session, and the rules that a ProtocolError wraps.
var (
	ErrPeerSilent      = core.ErrPeerSilent
	ErrPathMTU         = core.ErrPathMTU
	ErrControlReceives = core.ErrControlReceives
	ErrMemory          = memory.ErrMemory
	ErrBudget          = memory.ErrBudget

	ErrDataSend        = core.ErrDataSend
	ErrIndicatedLength = core.ErrIndicatedLength
	ErrFrame           = core.ErrFrame
	ErrNoChannel       = core.ErrNoChannel
	ErrTooManyRequests = core.ErrTooManyRequests
	ErrUnexpected      = core.ErrUnexpected
	ErrImmediate       = core.ErrImmediate
	ErrIndications     = core.ErrIndications
	ErrNeedless        = core.ErrNeedless
	ErrSequence        = core.ErrSequence
	ErrProofMissing    = core.ErrProofMissing
	ErrProofWrong      = core.ErrProofWrong
	ErrPathMissing     = core.ErrPathMissing
	ErrNotAuthentic    = seal.ErrNotAuthentic
)

// NewBudget returns a budget of limit bytes.
func NewBudget(limit int64) *Budget { return memory.NewBudget(limit) }

// Codes has the names of all rules that a peer can break, for counters.
func Codes() []string { return core.Codes() }
