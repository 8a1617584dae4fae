package bufpool

import (
	"errors"
	"fmt"
	"time"
)

// Errors of a peer that breaks the protocol.
var (
	// ErrPool is wrapped when the peer names a pool that is not lent.
	ErrPool = errors.New("pool that was not lent on this channel")
	// ErrPoolTwice is wrapped when the peer lends a pool under a reference that is
	// in use.
	ErrPoolTwice = errors.New("pool reference is in use")
	// ErrTooManyPools and ErrTooManyElements are wrapped when the peer lends more
	// on a data channel than was agreed.
	ErrTooManyPools    = errors.New("more pools than a channel can have")
	ErrTooManyElements = errors.New("more elements than a channel can have")
	// ErrTooManyFlushes is wrapped when the peer flushes again before it has the
	// reply to its last flush.
	ErrTooManyFlushes = errors.New("more unanswered flushes than agreed")
	// ErrReply is wrapped when the peer replies without a request.
	ErrReply = errors.New("reply to no request")
	// ErrKeyMessage is wrapped when the peer sends a key for which there can be no pool.
	ErrKeyMessage = errors.New("message with a key for which there is no pool")
	// ErrInvalidated is wrapped when the peer invalidates a window whose pool is not being
	// flushed, or that it may not invalidate.
	ErrInvalidated = errors.New("message that invalidates a key which is not to be invalidated")
)

// Config has the limits and features of the pools of a session.
type Config struct {
	Channels    int  // data channels
	MaxPools    int  // most pools that this side lends on each channel
	PeerPools   int  // most pools that the peer lends on each channel
	MaxElements int  // most elements of all pools that the peer lends on a channel
	KeptPools   int  // most closed remote pools that are remembered on a channel
	OneTouch    bool // keys are sent before a local pool is offered
	Invalidates bool // the peer invalidates the windows of local pools
	// KeySend means that a local pool that was asked for is offered before its window is
	// bound. The key is sent behind the bind, in the same post.
	KeySend bool
	// PeerOneTouch means that the peer sends the keys of a pool that it lends without one.
	PeerOneTouch bool
	// IdleTicks is the number of ticks without use after which a remote pool that was asked
	// for is given back. A local one is taken back after twice as many.
	IdleTicks int
	// Pauses between requests for more pools: PatienceMin while they are granted, otherwise
	// increasing up to PatienceMax.
	PatienceMin, PatienceMax time.Duration
}

// Kind is the kind of an event.
type Kind uint8

// The events, each with its fields of Event and its meaning.
const (
	Done Kind = iota // Did, Local, Remote, Last: an action is carried out; Action.Done returns this event
	// Events of local pools.
	Failed      // Local: a Make that could not be carried out
	Invalidated // Local: the peer has invalidated its window
	// Events of remote pools.
	Lent   // Remote: the peer lends it
	Keyed  // Channel, Key: the peer has sent the key of a pool
	Needed // Channel, Size, Now: a sender has no element for Size bytes
	// Events of both.
	Get        // Channel, Size, Elements: the peer asks for a pool
	Flush      // Transaction, Refs: the peer sends a flush request
	FlushReply // Transaction: the peer has answered this side's flush request
	Tick       // Tight: time to check for idle pools
	Ending     // this side ends the session in good order: all pools end
)

// Event is an event with its parameters.
type Event struct {
	Kind        Kind
	Did         Do
	Local       *Local
	Remote      *Remote
	Last        bool
	Tight       bool   // pools lent on request end even if they are in use
	Channel     int    // 1 to Config.Channels
	Key         uint32 // key of a window
	Size        int    // bytes
	Elements    int    // number of elements that the peer asks for
	Transaction uint64 // transaction of a flush
	Refs        []uint32
	Now         time.Time
}

// Do is the kind of an action.
type Do uint8

// The actions, each with its fields of Action. Whoever carries out an action that is marked with an
// asterisk passes the event Done to the pools afterwards.
const (
	// Actions of the receiver of the pool's channel.
	Adopt Do = iota // * Local: post its receives
	Drain           // * Local: process what has arrived, return it if the peer waits for it, and remove the pool
	// Actions of the sender of the pool's channel, which alone posts to its send queue.
	Bind       // * Local: bind its windows
	BindSend   // Local: bind its window and send the key behind, in one post
	Unbind     // * Local: invalidate its windows
	Use        // Remote: use its credits
	Stop       // * Remote, Last: stop using it, await its transfers, invalidate its window if Last
	Invalidate // Remote: send the message that invalidates its window
	// Actions of the pool manager, in order.
	Make       // * Local, Size, Elements: allocate and register it; or else Failed
	SendKeys   // * Local: send its keys to the peer
	Offer      // Local: offer it to the peer
	Ask        // * Channel, Size, Elements: ask the peer for a pool; done when the peer has handled that
	Request    // Refs, Transaction: send a flush request
	Reply      // * Transaction, Pools, Elements: answer the flush of this many remote pools and elements; done just before
	Deregister // * Local: deregister it
	// Actions on elements, which Pools does not determine.
	Consume // the receiver takes an element that the peer has indicated by a message
	Revoke  // Batch: the sender invalidates the windows of its elements, and the receiver delivers them then
	Rebind  // Batch: the sender binds the windows again, and the receiver releases the elements then
)

// Action is an action with its parameters.
type Action struct {
	Do          Do
	Local       *Local
	Remote      *Remote
	Last        bool
	Channel     int
	Size        int // size of the elements in bytes
	Elements    int
	Pools       int
	Refs        []uint32 // with protocol.FlushGiveBack
	Transaction uint64
	Batch       *Batch
}

// Done returns the event that the action is carried out.
func (act *Action) Done() Event {
	return Event{Did: act.Do, Local: act.Local, Remote: act.Remote, Last: act.Last}
}

// Pools is the state machine of a session's receive pools, local and remote. Events go in
// and actions come out; it has no goroutine, lock or clock. The caller of Step has to make
// one call at a time, and to pass on the actions of one call before those of the next. There
// is a method for each event. Local and remote pools share one type, because a step of one
// side's pool often waits for a step of the other's.
//
// # The life of a local pool
//
//	Get ─▶ made ──▶ adopted ──▶ bound ──▶ keys sent ──▶ offered
//	       Make     Adopt       Bind      SendKeys      Offer
//
// Pools without windows are not bound, and only one-touch pools have keys to be sent. With
// Config.KeySend a pool that was asked for is offered as soon as it is adopted, and bound at
// the same time (BindSend): its key is sent behind the bind on the pool's data channel. Keys
// are sent in the order in which pools are offered. The first pools of a session are offered
// together. If a peer knew only the pools with small elements, a large frame would seem to
// fit no pool.
//
//	offered ──▶ flushing ──▶ draining ──▶ revoking ──▶ gone
//	            Request      Drain        Unbind       Deregister
//
// If the peer gives a pool back, by its own flush, the pool skips the state flushing. A pool
// without windows skips revoking. If the peer invalidates the windows, there is no Unbind:
// this side waits for the peer's message, which may already have arrived in state flushing.
// The reply to the peer's flush is sent when the pools without windows are deregistered, but
// before windows end, because the peer invalidates a window after it has the reply.
//
// # The life of a remote pool
//
//	in use ──▶ stopping ──▶ flushing ──▶ closed
//	           Stop         Request
//
// The peer can take a pool back, by its own flush, in any of these states. The pool is
// closed immediately, and the reply is sent when its sender has stopped.
//
// A pool whose key follows (Remote.KeyFollows) is neither used nor stopped before the key
// has arrived. Key and offer come on different channels, in either order. The reply to a
// flush therefore shows that the key has been received and its receive posted again.
//
// # Flushes
//
// At the end of a session in good order (Ending), this side flushes all pools, local and
// remote, and lends no others. The local pools end together, with one flush, and so do the
// remote pools, as far as one message names them. Those that are not offered yet, or whose
// key has not arrived, end later. During a session idle pools end one after the other.
//
// Each side has at most one unanswered flush.
type Pools struct {
	cfg    Config
	local  []*Local           // by reference
	remote map[uint32]*Remote // by reference, including closed ones: see forget
	closed uint64             // number of remote pools closed so far

	unready int      // number of first pools that are not ready to be offered
	unsent  []*Local // pools to be offered in turn when their keys are sent; those of the first are being sent

	ownFlush  ownFlush
	peerFlush peerFlush
	asked     asked
	peerKeys  peerKeys
	keys      []keys // by channel

	ending bool

	count Counts
}

// ownFlush is the last flush of this side, and the pools of the next one.
type ownFlush struct {
	latest   uint64    // transaction of the last flush
	awaited  bool      // it is unanswered
	local    []*Local  // its pools that this side lends, until the peer has replied
	remote   []*Remote // its pools that the peer lends, until the peer has replied
	stopping []*Remote // those of the next one, when their senders have stopped and no flush is unanswered
}

// asked has the requests for pools that this side has made.
type asked struct {
	open     bool // an Ask may not be handled yet
	at       time.Time
	patience time.Duration
	lentThen uint64 // number of pools that the peer had lent at the time of the last request
	sizes    []int  // by channel: element size of the last request
}

// peerFlush is the last flush of the peer.
type peerFlush struct {
	out         bool // unanswered
	transaction uint64
	left        int // pools that are not finished
	pools       int // remote pools
	elements    int // elements of the remote pools
}

// Counts has the counters of pools.
type Counts struct {
	Asked    uint64 // requests for more pools
	Granted  uint64 // pools lent on the peer's request
	Refused  uint64 // requests of the peer that were not granted
	Returned uint64 // local pools that were deregistered
	Given    uint64 // remote pools that were given back
	Lent     uint64 // pools lent by the peer
}

// NewPools returns a state machine without pools.
func NewPools(cfg Config) *Pools {
	return &Pools{
		cfg: cfg, local: make([]*Local, cfg.Channels*cfg.MaxPools), remote: make(map[uint32]*Remote),
		asked: asked{patience: cfg.PatienceMin, sizes: make([]int, cfg.Channels)}, keys: make([]keys, cfg.Channels),
	}
}

// Count returns the counters.
func (p *Pools) Count() Counts { return p.count }

// Extra reports whether there are pools that were lent on request. Without any, a Tick has
// no effect.
func (p *Pools) Extra() bool {
	for _, l := range p.local {
		if l != nil && l.Extra {
			return true
		}
	}
	for _, r := range p.remote {
		if r.extra && r.state == remoteInUse {
			return true
		}
	}
	return false
}

// Remote returns the remote pool with a reference, or the last one that had it, which may be
// closed. It returns nil if there was none.
func (p *Pools) Remote(ref uint32) *Remote { return p.remote[ref] }

// AtRest returns an error if a pool is being created or ended, or a message is unanswered.
func (p *Pools) AtRest() error {
	for _, l := range p.local {
		if l != nil && l.state != localOffered {
			return fmt.Errorf("bufpool: local pool %d is in state %d", l.Ref, l.state)
		}
	}
	for _, r := range p.remote {
		if r.state != remoteInUse && r.state != remoteClosed {
			return fmt.Errorf("bufpool: remote pool %d is in state %d", r.Ref, r.state)
		}
	}
	for i, k := range p.keys {
		if len(k.waiting)+len(k.early) > 0 {
			return fmt.Errorf("bufpool: on channel %d %d pools wait for their keys, and %d keys for their pools", i+1,
				len(k.waiting), len(k.early))
		}
	}
	own := &p.ownFlush
	if p.unready > 0 || len(p.unsent) > 0 || len(own.stopping) > 0 || own.awaited || p.peerFlush.out || p.asked.open {
		return fmt.Errorf("bufpool: pools are under way: %d without their keys sent, flush awaited %t, to be answered %t, asking %t",
			len(p.unsent), own.awaited, p.peerFlush.out, p.asked.open)
	}
	return nil
}

// Gone reports whether all pools have ended and no flush is unanswered.
func (p *Pools) Gone() bool {
	for _, l := range p.local {
		if l != nil {
			return false
		}
	}
	for _, r := range p.remote {
		if r.state != remoteClosed {
			return false
		}
	}
	return !p.ownFlush.awaited && !p.peerFlush.out && len(p.ownFlush.stopping) == 0
}

// First returns a new local pool, one of the first of a channel, or nil if no reference is
// free.
func (p *Pools) First(channel int) *Local {
	l := p.newLocal(channel)
	if l != nil {
		p.unready++
	}
	return l
}

// newLocal returns a new local pool of a channel, or nil if no reference is free. The
// references of a channel are consecutive, so that its receiver finds a pool by the
// difference to the first one.
func (p *Pools) newLocal(channel int) *Local {
	first := (channel - 1) * p.cfg.MaxPools
	for ref := first; ref < first+p.cfg.MaxPools; ref++ {
		if p.local[ref] == nil {
			p.local[ref] = &Local{Ref: uint32(ref), Channel: channel}
			return p.local[ref]
		}
	}
	return nil
}

// request requests a flush: that the peer stops using local pools, or takes back remote
// ones.
func (p *Pools) request(refs []uint32, out []Action) []Action {
	p.ownFlush.latest++
	p.ownFlush.awaited = true
	return append(out, Action{Do: Request, Refs: refs, Transaction: p.ownFlush.latest})
}

// finished records that another pool of the peer's flush is finished.
func (p *Pools) finished(out []Action) []Action {
	if p.peerFlush.left--; p.peerFlush.left > 0 {
		return out
	}
	o := &p.peerFlush
	return append(out, Action{Do: Reply, Transaction: o.transaction, Pools: o.pools, Elements: o.elements})
}

// keys assigns the keys that the peer sends on a data channel to pools, in order. At least
// one of the two lists is empty.
type keys struct {
	early   []uint32  // keys of pools that are not lent yet
	waiting []*Remote // pools whose keys have not arrived
}
